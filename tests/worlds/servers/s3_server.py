"""The S3 server that the tests run against, and fresh buckets on it.

`s3_server`: the endpoint in CAFCAT_TEST_S3_URL (with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), else the kind in
CAFCAT_TEST_S3_KIND (see tests/s3_servers/kinds.py), else a container if a Docker engine answers, else DEFAULT_KIND.
`s3_bucket`, `make_bucket`: fresh buckets on it. `s3_environment`: variables that point boto3, obstore and cafcat to
the server, in this process and its children. Without a server the tests are skipped with a message, or fail if
CAFCAT_REQUIRE_SERVICES=1.
"""

import contextlib
import fcntl
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote_plus

import pytest

from tests.s3_servers.base import Missing, ServerKind
from tests.s3_servers.keeper import answers
from tests.s3_servers.kinds import DEFAULT_KIND, KINDS
from tests.worlds.fork_server import cache_descriptions
from tests.worlds.memory import disk_folder
from tests.worlds.servers.services import docker_answers, missing_service
from tests.worlds.sharing import run_folder

if TYPE_CHECKING:
    import boto3
    from types_boto3_s3 import S3Client

CONTAINER_IMAGE = "versity/versitygw:v1.8.0"
CONTAINER_PORT = 7070
START_SECONDS = 200
POLL_SECONDS = 0.05
PREFIX = "cafcat-s3-"
PROJECT = Path(__file__).parents[3]
FEATURES = {
    "usual_answers": "the same answers as S3: tags, checksums, lists of uploads",
    "crc64": "CRC-64/NVME of whole objects",
    "one_checksum": "CRC-64/NVME of whole objects, or none (it takes ours for that of the parts)",
    "unchecked_parts": "parts without the checksum that the upload was begun with",
    "long_lists": "lists of several pages, also if a page ends with a key that is not ASCII",
    "list_order": "listings in byte order of keys",
    "any_key": "keys such as a//b, or a beside a/b",
    "backslashes": "keys with a backslash",
    "newlines": "keys with a newline",
    "control_characters": "keys with other control characters",
    "first_byte": "a range of the first byte alone",
    "conditional_reads": "If-Match of a GET",
    "conditional_writes": "If-None-Match of a PUT and of a completion",
    "atomic_conditional_writes": "one winner of many writers at once with If-None-Match",
    "list_uploads": "a list of unfinished uploads",
    "abort_uploads": "an end of unfinished uploads",
    "part_checks": "parts with a wrong checksum are refused",
    "signatures": "a wrong secret is refused",
}
"""Features that some servers lack, and that tests need."""

DEVELOPERS_OWN = (
    "AWS_PROFILE",
    "AWS_DEFAULT_PROFILE",
    "AWS_REGION",
    "AWS_SESSION_TOKEN",
    "AWS_SECURITY_TOKEN",
    "AWS_ENDPOINT_URL_S3",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_MAX_ATTEMPTS",
    "AWS_RETRY_MODE",
)
"""A developer's own variables that would choose another server, or change the behaviour of a client."""
NO_FILES = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}


@dataclass(frozen=True)
class S3Server:
    """Address and credentials of a server.

    Attributes:
        is_lasting: the server exists after the tests.
        lacks: names of FEATURES.
        kind: a name in tests/s3_servers/kinds.py.
    """

    endpoint_url: str
    access_key: str
    secret_key: str = field(repr=False)
    region: str
    is_lasting: bool = False
    lacks: frozenset[str] = frozenset()
    kind: str = ""

    def has(self, feature: str) -> bool:
        """Return True if the server has a feature. feature: a name of FEATURES."""
        assert feature in FEATURES
        return feature not in self.lacks

    def client(self, max_attempts: int = 1) -> "S3Client":
        """Return a boto3 client that neither retries nor checks answers: tests see the server's own behaviour."""
        from botocore.config import Config

        return boto_session().client(
            "s3",
            endpoint_url=self.endpoint_url,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=self.region,
            config=Config(
                s3={"addressing_style": "path"},
                signature_version="s3v4",
                retries={"total_max_attempts": max_attempts, "mode": "standard"},
                max_pool_connections=64,
                response_checksum_validation="when_required",  # moto shows a wrong CRC-64
                proxies={},
            ),
        )

    def environ(self) -> dict[str, str]:
        """Return the variables that point a program to this server, whatever the developer's own files contain."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
            **NO_FILES,
        }


def needs(server: S3Server, *features: str) -> None:
    """Skip the test if the server lacks a feature."""
    for feature in features:
        if not server.has(feature):
            pytest.skip(f"the {server.kind} server lacks {FEATURES[feature]}")


def parameters(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the parameters of the test for which a fixture is made."""
    callspec = getattr(request.node, "callspec", None)
    return {} if callspec is None else dict(callspec.params)


@functools.cache
def boto_session() -> "boto3.Session":
    """Return one session for all clients, because each session parses the description of the API."""
    import boto3

    return boto3.Session()


@contextlib.contextmanager
def any_server(shared: Path) -> Iterator[S3Server]:
    """Yield the first available kind of server. shared: a folder that all workers of this test run use."""
    url = os.environ.get("CAFCAT_TEST_S3_URL")
    if url:
        yield given_server(url)
    elif os.environ.get("CAFCAT_TEST_S3_KIND") or not docker_answers():
        with kind_of_server(KINDS[os.environ.get("CAFCAT_TEST_S3_KIND") or DEFAULT_KIND], shared) as server:
            yield server
    else:
        with container_server() as server:
            yield server


def given_server(url: str) -> S3Server:
    missing = [name for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY") if not os.environ.get(name)]
    if missing:
        missing_service(f"CAFCAT_TEST_S3_URL needs {' and '.join(missing)} beside it")
    region = os.environ.get("AWS_DEFAULT_REGION") or os.environ.get("AWS_REGION") or "us-east-1"
    return S3Server(
        url, os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"], region, is_lasting=True
    )


@contextlib.contextmanager
def container_server() -> Iterator[S3Server]:
    from testcontainers.core.container import DockerContainer

    access_key, secret_key = "cafcat", uuid.uuid4().hex
    container = DockerContainer(CONTAINER_IMAGE).with_exposed_ports(CONTAINER_PORT)
    container.with_env("ROOT_ACCESS_KEY", access_key).with_env("ROOT_SECRET_KEY", secret_key)
    with container.with_command("posix /tmp"):
        place = f"{container.get_container_host_ip()}:{container.get_exposed_port(CONTAINER_PORT)}"
        server = S3Server(f"http://{place}", access_key, secret_key, "us-east-1", lacks=frozenset({"any_key"}))
        deadline = time.monotonic() + START_SECONDS
        while not answers(server.endpoint_url):
            if time.monotonic() > deadline:
                missing_service(f"{CONTAINER_IMAGE} does not answer")
            time.sleep(POLL_SECONDS)
        yield server


@contextlib.contextmanager
def kind_of_server(kind: ServerKind, shared: Path) -> Iterator[S3Server]:
    """Yield the server of this test run. The first user starts the server, and stops it when all others are done.

    Each user holds a shared lock on `users`. The system releases the lock if the user is killed: see keeper.py.
    """
    shared.mkdir(exist_ok=True)
    process: subprocess.Popen[bytes] | None = None
    with open(shared / "users", "ab") as users, contextlib.ExitStack() as cleanup:
        with open(shared / "start", "ab") as start:
            fcntl.flock(start, fcntl.LOCK_EX)
            fcntl.flock(users, fcntl.LOCK_SH)
            endpoint = shared / "endpoint"
            if not (endpoint.exists() and answers(endpoint.read_text())):
                check_kind(kind)
                folder = (
                    folder_with_attributes() if kind.needs_attributes else Path(tempfile.mkdtemp(prefix=PREFIX))
                )
                process = start_keeper(kind, folder, shared)
                cleanup.callback(stop_keeper, process, folder, users)
            url = wait_for_server(kind, process, shared)
        yield S3Server(url, kind.access_key, kind.secret_key, "us-east-1", lacks=kind.lacks, kind=kind.name)


def check_kind(kind: ServerKind) -> None:
    try:
        kind.check()
    except Missing as error:
        missing_service(f"no S3 server: {error}")


def start_keeper(kind: ServerKind, folder: Path, shared: Path) -> "subprocess.Popen[bytes]":
    (shared / "endpoint").unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.s3_servers.keeper", kind.name, str(folder), str(shared)]
    with open(shared / "server.log", "ab") as log:
        return subprocess.Popen(
            command, cwd=PROJECT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )


def wait_for_server(kind: ServerKind, process: "subprocess.Popen[bytes] | None", shared: Path) -> str:
    """Return the URL of the server, once it answers."""
    endpoint, deadline = shared / "endpoint", time.monotonic() + START_SECONDS
    while not endpoint.exists() or not answers(endpoint.read_text()):
        if (process is not None and process.poll() is not None) or time.monotonic() > deadline:
            lines = (shared / "server.log").read_text(errors="replace").splitlines() or ["no word"]
            missing_service(f"{kind.title} did not start: {lines[-1]}")
        time.sleep(POLL_SECONDS)
    return endpoint.read_text()


def stop_keeper(process: "subprocess.Popen[bytes]", folder: Path, users: IO[bytes]) -> None:
    """Wait for the other users, then end the server and remove its files."""
    fcntl.flock(users, fcntl.LOCK_EX)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    (Path(users.name).parent / "endpoint").unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def folder_with_attributes() -> Path:
    """Return a new folder where Swift can keep objects: on a disk, and with extended attributes."""
    parents = [Path(disk_folder()), Path.cwd()]
    usable = [parent for parent in parents if has_attributes(parent)]
    if not usable:
        missing_service(f"no extended attributes in {parents[0]} and {parents[1]}, which Swift needs")
    return Path(tempfile.mkdtemp(prefix=PREFIX, dir=usable[0]))


def has_attributes(folder: Path) -> bool:
    """Return True if files in this folder can have extended attributes of the size that Swift needs."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            os.setxattr(file.fileno(), "user.cafcat", b"x" * 1024)
    except OSError:
        return False
    return True


def new_bucket(client: "S3Client") -> str:
    """Make a bucket with a unique name, so that several test sessions can share a server."""
    bucket = f"cafcat-test-{uuid.uuid4().hex}"
    client.create_bucket(Bucket=bucket)
    return bucket


def empty_bucket(client: "S3Client", bucket: str) -> None:
    """Remove all objects and all unfinished uploads, whatever characters their keys have."""
    while uploads := client.list_multipart_uploads(Bucket=bucket, EncodingType="url").get("Uploads"):
        for upload in uploads:
            key = unquote_plus(upload["Key"])
            with contextlib.suppress(client.exceptions.NoSuchUpload):  # SeaweedFS changes odd keys
                client.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload["UploadId"])
    while objects := client.list_objects_v2(Bucket=bucket).get("Contents"):
        for item in objects:
            client.delete_object(Bucket=bucket, Key=item["Key"])


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server for tests, shared by all workers of this run.

    It hides the developer's own AWS configuration for the rest of the session.
    """
    cache_descriptions()
    with any_server(run_folder(tmp_path_factory) / "s3") as server, pytest.MonkeyPatch.context() as environment:
        for name in DEVELOPERS_OWN:
            environment.delenv(name, raising=False)
        for name, value in NO_FILES.items():
            environment.setenv(name, value)
        yield server


@pytest.fixture
def make_bucket(s3_server: S3Server) -> Iterator[Callable[[], str]]:
    """A function that makes a fresh bucket and returns its name.

    On a server that exists after the tests, the bucket is emptied and deleted afterwards. Other servers are removed
    with all their buckets, which is faster.
    """
    client, buckets = s3_server.client(max_attempts=5), list[str]()

    def make() -> str:
        buckets.append(new_bucket(client))
        return buckets[-1]

    try:
        yield make
        for bucket in buckets if s3_server.is_lasting else []:
            empty_bucket(client, bucket)
            client.delete_bucket(Bucket=bucket)
    finally:
        client.close()


@pytest.fixture
def s3_bucket(make_bucket: Callable[[], str]) -> str:
    """The name of a fresh bucket."""
    return make_bucket()


@pytest.fixture
def s3_environment(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point this process and its children to `s3_server`."""
    for name, value in s3_server.environ().items():
        monkeypatch.setenv(name, value)
