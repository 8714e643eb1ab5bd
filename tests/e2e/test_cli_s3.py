"""S3 with the real command: buckets as sources and stores, refused credentials, and hidden secrets."""

import random
import signal
import subprocess
import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import psycopg
import pytest

from tests.e2e.conftest import Cafcat
from tests.worlds.servers.s3_server import S3Server
from tests.worlds.waiting import PATIENCE_SECONDS, wait_until

SECRET = "this-is-a-very-wrong-secret"  # noqa: S105
TOKEN = "this-is-a-session-token"  # noqa: S105

pytestmark = pytest.mark.usefixtures("s3_environment")


@pytest.fixture
def bucket(s3_server: S3Server, s3_bucket: str) -> str:
    """The name of a bucket with three objects."""
    client = s3_server.client()
    for key, body in {"photos/a.jpg": b"first", "photos/b c.jpg": b"second", "other": b"third"}.items():
        client.put_object(Bucket=s3_bucket, Key=key, Body=body)
    return s3_bucket


@pytest.fixture
def in_s3(cafcat: Cafcat, make_bucket: Callable[[], str]) -> Cafcat:
    """The command with its chunks in a bucket."""
    cafcat.extra["CAFCAT_STORE"] = f"s3://{make_bucket()}/chunks"
    return cafcat


def test_bucket_is_ingested_into_a_bucket_and_read_back(in_s3: Cafcat, bucket: str) -> None:
    summary = in_s3("ingest", f"s3://{bucket}/photos", "--json").documents[-1]["summary"]
    assert summary["files_added"] == 2
    assert in_s3("ls", "photos").lines == ["photos/a.jpg", "photos/b c.jpg"]
    assert in_s3("cat", "photos/b c.jpg").out == b"second"
    in_s3("extract", "photos", "-C", "out")
    assert (in_s3.folder / "out/photos/a.jpg").read_bytes() == b"first"
    store = in_s3.extra["CAFCAT_STORE"]
    assert in_s3("stat", "photos/a.jpg", "--json").document["object"].startswith(f"{store}/")
    assert in_s3("chunks", "ls", "--json").document["store"] == store


def test_a_named_store_of_the_configuration(in_s3: Cafcat, bucket: str, s3_server: S3Server) -> None:
    """The table completes AWS' own configuration."""
    url = in_s3.extra.pop("CAFCAT_STORE")
    home = in_s3.folder / "home"
    home.mkdir()
    (home / "cafcat.toml").write_text(
        f'[stores.archive]\nurl = "{url}"\nendpoint_url = "{s3_server.endpoint_url}"\nregion = "us-east-1"\n'
        f'[stores.incoming]\nurl = "s3://{bucket}"\nendpoint_url = "{s3_server.endpoint_url}"\n'
        'addressing = "path"\n'
    )
    in_s3.extra |= {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "CAFCAT_STORE": "archive"}
    in_s3("ingest", f"s3://{bucket}")
    assert in_s3("cat", "other").out == b"third"
    assert in_s3("chunks", "ls", "--json").document["store"] == url
    in_s3.extra["CAFCAT_STORE"] = str(in_s3.folder / "elsewhere")
    assert in_s3("cat", "other").out == b"third", "the row says where the chunk is"
    assert s3_server.endpoint_url in in_s3("config").text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ingest", "s3://no-such-bucket-anywhere"), "NoSuchBucket"),
        (("ingest", "s3://{bucket}/nothing-here"), "no such object"),
    ],
)
def test_missing_objects_have_exit_code_4(
    in_s3: Cafcat, bucket: str, arguments: tuple[str, str], message: str
) -> None:
    verb, url = arguments
    assert message in in_s3(verb, url.format(bucket=bucket), code=4).err


def test_refused_credentials_are_exit_12_and_one_line_and_no_secret_is_kept(
    in_s3: Cafcat, bucket: str, database_url: str, tmp_path: Path
) -> None:
    in_s3("ingest", f"s3://{bucket}/photos")
    (tmp_path / "file").write_bytes(b"x")
    in_s3.extra |= {"AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": TOKEN}
    outputs = []
    for command in (
        ("ingest", f"s3://{bucket}"),
        ("ingest", "file"),
        ("cat", "photos/a.jpg"),
        ("get", "photos/a.jpg", "-o", "x"),
        ("extract", "photos", "-C", "out"),
    ):
        result = in_s3(*command, "-q", code=12)
        assert len(result.err.splitlines()) == 1, result.err
        assert "SignatureDoesNotMatch" in result.err or "server answered" in result.err
        outputs += [result.err, in_s3(*command, "--json", code=12).err]
    # With --debug the traceback quotes the server's answer: it must have no secret either.
    debugged = subprocess.run(
        in_s3.command("cat", "photos/a.jpg", "--debug"), cwd=tmp_path, env=in_s3.environment, capture_output=True
    )
    outputs += [
        debugged.stdout.decode(),
        debugged.stderr.decode(),
        in_s3("config").text,
        in_s3("config", "--json").text,
    ]
    with psycopg.connect(database_url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        for (table,) in tables:
            outputs += [row[0] for row in connection.execute(f"SELECT t::text FROM {table} AS t".encode())]
    assert len(outputs) > 20
    assert not [text for text in outputs if SECRET in text or TOKEN in text]


def test_no_credentials_at_all_are_exit_12(in_s3: Cafcat, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    result = in_s3("ingest", f"s3://{bucket}", code=12)
    assert result.err.count("\n") == 1
    assert "credentials" in result.err


def test_missing_profile_has_exit_code_12(in_s3: Cafcat, bucket: str) -> None:
    in_s3.extra["AWS_PROFILE"] = "nobody"
    assert "nobody" in in_s3("ingest", f"s3://{bucket}", code=12).err


def test_unreachable_server_is_reported_in_one_line(in_s3: Cafcat, bucket: str) -> None:
    in_s3("ingest", f"s3://{bucket}/photos")
    in_s3.extra["AWS_ENDPOINT_URL"] = "http://127.0.0.1:9"
    for command in (("ingest", f"s3://{bucket}"), ("cat", "photos/a.jpg")):
        result = in_s3(*command, code=1)
        assert result.err.count("\n") == 1, result.err


@pytest.mark.parametrize("secret_url", ["s3://AKIA:hun/ter2@bucket/x", "s3://key:hunter2@bucket"])
def test_credentials_in_a_url_are_refused_and_not_echoed(in_s3: Cafcat, secret_url: str) -> None:
    for command in (("ingest", secret_url), ("--store", secret_url, "ls")):
        result = in_s3(*command, code=2)
        assert "hun" not in result.err + result.text


def test_ctrl_c_commits_packed_files_and_the_next_run_continues(
    in_s3: Cafcat, s3_server: S3Server, make_bucket: Callable[[], str]
) -> None:
    client, source = s3_server.client(), make_bucket()
    for n in range(150):
        client.put_object(Bucket=source, Key=f"{n:04}", Body=b"%03d" % n * 100)
    process = in_s3.popen("ingest", f"s3://{source}", "--target-size", "5kB", "--json")
    store = in_s3.extra["CAFCAT_STORE"].removeprefix("s3://").partition("/")[0]
    # The first object is the marker of the store. A journal record follows a chunk.
    wait_until(lambda: client.list_objects_v2(Bucket=store, Prefix="chunks/journal/").get("KeyCount"))
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130, out
    assert client.list_multipart_uploads(Bucket=store).get("Uploads", []) == []
    result = in_s3("ingest", f"s3://{source}")
    assert "continuing the listing" in result.err
    assert len(in_s3("ls").lines) == 150


def tar_of(files: dict[str, bytes]) -> bytes:
    stream = BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, BytesIO(data))
    return stream.getvalue()


def test_tar_files_and_streams_are_unpacked(in_s3: Cafcat) -> None:
    files = {"in/a": b"1", "in/big": random.randbytes(3_000_000), "in/z": b"2"}
    data = tar_of(files)
    (in_s3.folder / "some.tar").write_bytes(data)
    in_s3("ingest", "some.tar", "--prefix", "file")
    in_s3("ingest", "-", "--prefix", "stream", stdin=data)
    in_s3("ingest", "some.tar", "--no-unpack")
    for name, content in files.items():
        assert in_s3("cat", f"file/{name}").out == content
        assert in_s3("cat", f"stream/{name}").out == content
    assert in_s3("cat", "some.tar").out == data


def test_lists_may_mix_urls_and_names(in_s3: Cafcat, bucket: str) -> None:
    (in_s3.folder / "local.txt").write_bytes(b"local")
    names = f"s3://{bucket}/photos/b c.jpg\nlocal.txt\ns3://{bucket}/other\n"
    in_s3("ingest", "--files-from", "-", stdin=names.encode())
    assert in_s3("ls", "-R").lines == ["local.txt", "other", "photos/b c.jpg"]
    assert in_s3("cat", "photos/b c.jpg", "other", "local.txt").out == b"secondthirdlocal"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_ENDPOINT_URL", "http://user:hunter2@127.0.0.1:9"),
        ("AWS_ENDPOINT_URL", "localhost:7070"),
        ("AWS_ENDPOINT_URL", "garbage"),
    ],
)
def test_invalid_server_url_is_reported_without_its_secret(
    in_s3: Cafcat, bucket: str, database_url: str, name: str, value: str
) -> None:
    in_s3.extra[name] = value
    result = in_s3("ingest", f"s3://{bucket}", code=2)
    assert "hunter2" not in result.err
    assert "bug" not in result.err
    (in_s3.folder / "file").write_bytes(b"1")
    assert "hunter2" not in in_s3("ingest", "file", code=2).err
    with psycopg.connect(database_url) as connection:
        rows = connection.execute("SELECT e::text FROM events AS e UNION ALL SELECT r::text FROM ingest_runs AS r")
        assert not [row for row in rows if "hunter2" in row[0]]


def test_empty_region_is_ignored(in_s3: Cafcat, bucket: str) -> None:
    in_s3.extra["AWS_DEFAULT_REGION"] = ""
    in_s3("ingest", f"s3://{bucket}")
    assert in_s3("cat", "other").out == b"third"


def test_an_inventory_url_with_a_secret_is_not_echoed(in_s3: Cafcat, bucket: str) -> None:
    secret = "https://u:hunter2@h/manifest.json?X-Amz-Signature=abcdef"  # noqa: S105
    result = in_s3("ingest", f"s3://{bucket}", "--inventory", secret, code=2)
    assert "hunter2" not in result.err
    assert "abcdef" not in result.err


def test_a_url_of_one_file_is_refused_without_its_secrets(cafcat: Cafcat) -> None:
    error = cafcat("ingest", "https://u:hunter2@host/file?X-Amz-Signature=abcdef", code=2).err
    assert "https://host/file is one file" in error
    assert "hunter2" not in error
    assert "abcdef" not in error


def test_missing_certificates_are_named(in_s3: Cafcat, bucket: str) -> None:
    in_s3.extra["AWS_CA_BUNDLE"] = "missing.pem"
    error = in_s3("ingest", f"s3://{bucket}", code=2).err
    assert "the certificates in missing.pem cannot be read" in error
    assert "AWS_CA_BUNDLE" in error


def test_urls_of_one_name_are_failures(in_s3: Cafcat, bucket: str, s3_server: S3Server) -> None:
    client = s3_server.client()
    urls = [
        client.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "other"}, ExpiresIn=seconds)
        for seconds in (600, 700)
    ]
    listed = "\n".join([urls[0], urls[1], urls[0]]).encode()
    result = in_s3("ingest", "--files-from", "-", "--json", stdin=listed, code=3)
    summary = result.documents[-1]["summary"]
    assert (summary["files_added"], summary["files_failed"]) == (1, 1)
    assert "Signature" not in result.err + result.text


def test_file_that_only_looks_like_a_tar_is_reported(in_s3: Cafcat) -> None:
    (in_s3.folder / "x.tar.gz").write_bytes(b"not even compressed")
    assert "it is ingested as a file" in in_s3("ingest", "x.tar.gz").err
    assert "no-unpack" in in_s3("ingest", "-", "--no-unpack", code=2).err
