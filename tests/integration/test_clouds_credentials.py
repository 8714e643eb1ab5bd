"""Credentials of Google Cloud Storage and Azure: tokens, shared access signatures, and none."""

import base64
import hashlib
import hmac
import json
import threading
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlencode

import pytest

from cafcat.errors import AccessDenied, InvalidInput
from cafcat.stores.kind import StoreContext
from cafcat.stores.registry import open_store
from tests.worlds.servers.clouds import ACCOUNT, KEY, Azure, Bucket, Google

DATA = b"0123456789"
VARIABLES = (
    "AZURE_STORAGE_CONNECTION_STRING",
    "AZURE_STORAGE_ACCOUNT",
    "AZURE_STORAGE_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "STORAGE_EMULATOR_HOST",
    "GOOGLE_APPLICATION_CREDENTIALS",
)


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


class TokenServer(ThreadingHTTPServer):
    """Gives OAuth tokens to one service account, as oauth2.googleapis.com does."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _TokenRequest)
        self.given = 0


class _TokenRequest(BaseHTTPRequestHandler):
    server: TokenServer

    def do_POST(self) -> None:
        asked = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
        claims = json.loads(base64.urlsafe_b64decode(asked["assertion"][0].split(".")[1] + "=="))
        is_right = claims["iss"] == "right@example.org"
        self.server.given += is_right
        answer = {"access_token": "token", "expires_in": 3600} if is_right else {"error": "invalid_grant"}
        body = json.dumps(answer).encode()
        self.send_response(200 if is_right else 400)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def token_server() -> Iterator[TokenServer]:
    with TokenServer() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def credentials_file(folder: Path, server: TokenServer, email: str) -> str:
    """Write a file with the key of a service account, as `gcloud iam service-accounts keys create` does."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    document = {
        "type": "service_account",
        "client_email": email,
        "private_key_id": "1",
        "private_key": key.decode(),
        "token_uri": f"http://127.0.0.1:{server.server_address[1]}/token",
    }
    file = folder / "credentials.json"
    file.write_text(json.dumps(document))
    return str(file)


def test_google_tokens_come_from_the_credentials_file(
    google: Google, token_server: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("google.auth")
    monkeypatch.setenv(
        "GOOGLE_APPLICATION_CREDENTIALS", credentials_file(tmp_path, token_server, "right@example.org")
    )
    bucket = Bucket(google, f"test-{uuid.uuid4().hex}")
    google.make(bucket.name)
    store = open_store(bucket.url, StoreContext(options={"endpoint_url": google.endpoint_url}))
    upload = store.create("key")
    upload.write(DATA)
    upload.commit()
    assert store.read("key", 2, 5) == DATA[2:5]
    assert token_server.given == 1, "all requests share one token"


def test_refused_google_credentials(
    token_server: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("google.auth")
    monkeypatch.setenv(
        "GOOGLE_APPLICATION_CREDENTIALS", credentials_file(tmp_path, token_server, "wrong@example.org")
    )
    with pytest.raises(AccessDenied, match="GOOGLE_APPLICATION_CREDENTIALS"):
        list(open_store("gs://bucket").list())


def account_sas(permissions: str) -> str:
    """Return a shared access signature for the account (Azure Storage, "Create an account SAS")."""
    end = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    version = "2021-12-02"
    fields = [ACCOUNT, permissions, "b", "sco", "", end, "", "https,http", version, "", ""]
    digest = hmac.new(base64.b64decode(KEY), "\n".join(fields).encode(), hashlib.sha256).digest()
    signature = base64.b64encode(digest).decode()
    parts = {"sv": version, "ss": "b", "srt": "sco", "sp": permissions, "se": end, "spr": "https,http"}
    return urlencode(parts | {"sig": signature})


@pytest.mark.parametrize("prefix", ["", "?"])
def test_a_shared_access_signature(azure: Azure, monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    bucket = Bucket(azure, f"test-{uuid.uuid4().hex}")
    azure.make(bucket.name)
    options = {"account": ACCOUNT, "endpoint_url": f"{azure.endpoint_url}/{ACCOUNT}"}
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", prefix + account_sas("rwdlc"))
    store = open_store(bucket.url, StoreContext(options=options))
    upload = store.create("key")
    upload.write(DATA)
    upload.commit()
    assert store.read("key", 2, 5) == DATA[2:5]
    assert [found.key for found in store.list()] == ["key"]
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", account_sas("rl"))
    reader = open_store(bucket.url, StoreContext(options=options))
    assert reader.read("key", 2, 5) == DATA[2:5]
    denied = reader.create("denied")
    denied.write(DATA)
    with pytest.raises(AccessDenied):
        denied.commit()
    denied.abort()
    with pytest.raises(AccessDenied) as caught:
        reader.delete("key")
    assert "sig=" not in str(caught.value)


def test_an_azure_login_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("azure.identity")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "account")
    monkeypatch.setenv("PATH", "")  # no az, no pwsh
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "AzureCliCredential")
    with pytest.raises(AccessDenied, match="az login"):
        list(open_store("az://container").list())


def test_an_access_key_that_is_not_base64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "account")
    monkeypatch.setenv("AZURE_STORAGE_KEY", "no base64!")
    with pytest.raises(InvalidInput, match="AZURE_STORAGE_KEY") as caught:
        list(open_store("az://container").list())
    assert "no base64!" not in str(caught.value)


def test_the_connection_string_of_another_account_is_not_used(
    azure: Azure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", azure.environ()["AZURE_STORAGE_CONNECTION_STRING"])
    options = {"account": "other", "anonymous": "true"}
    store = open_store("az://container", StoreContext(options=options))
    assert store._connection.server_url == "https://other.blob.core.windows.net"  # type: ignore[attr-defined]
