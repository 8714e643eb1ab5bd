"""gs:// and az:// with the real command: the life of a store, sources, configuration, refused credentials."""

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from cafcat.stores.keys import is_chunk_key
from tests.e2e.conftest import Cafcat
from tests.worlds.servers.clouds import ACCOUNT, KEY, Azure, Bucket, Cloud

MIB = 1 << 20


@pytest.fixture
def in_cloud(cafcat: Cafcat, cloud_bucket: Bucket) -> Cafcat:
    """The command with its chunks in a bucket or container."""
    cafcat.extra["CAFCAT_STORE"] = f"{cloud_bucket.url}/chunks"
    (cafcat.folder / "in").mkdir()
    for name, data in {"a": b"first", "b c": b"second", "ü": b"third", "large": bytes(9 * MIB)}.items():
        (cafcat.folder / "in" / name).write_bytes(data)
    return cafcat


def chunk_keys(bucket: Bucket) -> list[str]:
    return [key for key in bucket.cloud.keys(bucket.name) if is_chunk_key(key.removeprefix("chunks/"))]


@pytest.mark.slow
def test_the_life_of_a_store(in_cloud: Cafcat, cloud_bucket: Bucket, empty_database_url: str) -> None:
    """Ingest, get, cat, verify, copy, rm, repack, prune, recover and rebuild."""
    assert in_cloud("ingest", "in", "--json").documents[-1]["summary"]["files_added"] == 4
    assert in_cloud("cat", "in/b c").out == b"second"
    in_cloud("get", "in/large", "-o", "out")
    assert (in_cloud.folder / "out").read_bytes() == bytes(9 * MIB)
    assert "1 ok" in in_cloud("verify", "--level", "data").text
    assert in_cloud("url", "in/a").text.startswith(f"{cloud_bucket.url}/chunks/")
    in_cloud("copy", "--all", "--to", in_cloud.folder / "copies")
    in_cloud("rm", "in/large", "in/a")
    in_cloud("repack", "--max-unused", "10%", "--yes")
    in_cloud("prune", "--grace", "0", "--yes")
    assert len(chunk_keys(cloud_bucket)) == 1
    assert in_cloud("recover").text == "nothing to recover\n"
    in_cloud.database_url = empty_database_url
    in_cloud("db", "init")
    in_cloud("rebuild", in_cloud.extra["CAFCAT_STORE"])
    assert in_cloud("ls", "in").lines == ["in/b c", "in/ü"]


def test_a_bucket_is_ingested(in_cloud: Cafcat, cloud_bucket: Bucket) -> None:
    for key, data in {"photos/a.jpg": b"1", "photos/b.jpg": b"2", "photos-old": b"3"}.items():
        cloud_bucket.write(key, data)
    summary = in_cloud("ingest", f"{cloud_bucket.url}/photos", "--json").documents[-1]["summary"]
    assert summary["files_added"] == 2
    assert in_cloud("ls", "photos").lines == ["photos/a.jpg", "photos/b.jpg"]
    (in_cloud.folder / "list").write_text(f"{cloud_bucket.url}/photos-old\n")
    in_cloud("ingest", "--files-from", "list")
    assert in_cloud("cat", "photos-old").out == b"3"


def test_store_check(in_cloud: Cafcat) -> None:
    lines = in_cloud("store", "check", in_cloud.extra["CAFCAT_STORE"]).lines
    assert [line.split()[0] for line in lines] == ["writing", "reading", "listing", "conditional"]
    assert all(line.endswith("yes") for line in lines[:3])


def test_a_named_store_of_the_configuration(in_cloud: Cafcat, cloud: Cloud, cloud_bucket: Bucket) -> None:
    """The table completes the environment."""
    home = in_cloud.folder / "home"
    home.mkdir()
    options = {"endpoint_url": cloud.endpoint_url, "anonymous": "true"}
    variables = {"STORAGE_EMULATOR_HOST": "127.0.0.1:9"}
    if isinstance(cloud, Azure):
        options = {"endpoint_url": f"{cloud.endpoint_url}/{ACCOUNT}", "account": ACCOUNT}
        variables = {"AZURE_STORAGE_CONNECTION_STRING": "", "AZURE_STORAGE_KEY": KEY}
    table = "".join(f'{name} = "{value}"\n' for name, value in options.items())
    (home / "cafcat.toml").write_text(f'[stores.archive]\nurl = "{cloud_bucket.url}/chunks"\n{table}')
    in_cloud.extra |= variables | {"CAFCAT_STORE": "archive"}
    in_cloud("ingest", "in")
    assert in_cloud("cat", "in/a").out == b"first"
    shown = in_cloud("config").text
    assert cloud.endpoint_url in shown
    assert KEY not in shown


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ('account = "UPPER"', "is not the name of a storage account"),
        ('anonymous = "yes"', "must be one of true, false"),
        ('endpoint_url = "https://user:pw@host"', "is not the URL of a server"),
        ('account_key = "secret"', "account_key"),
    ],
)
def test_wrong_options_are_refused(cafcat: Cafcat, option: str, message: str) -> None:
    home = cafcat.folder / "home"
    home.mkdir()
    (home / "cafcat.toml").write_text(f'[stores.archive]\nurl = "az://container/chunks"\n{option}\n')
    cafcat.extra["CAFCAT_STORE"] = "archive"
    error = cafcat("ls", code=2).err
    assert message in error
    assert "pw" not in error
    assert "secret" not in error.replace("secrets", "")


@pytest.mark.parametrize(
    "url", ["az://user:pw@container", "gs://ab", "az://UPPER", "az://con--tainer", "gs://b?x=1"]
)
def test_wrong_urls_are_refused(cafcat: Cafcat, url: str) -> None:
    for arguments in (("ingest", url), ("store", "check", url)):
        error = cafcat(*arguments, code=2).err
        assert "pw" not in error


def test_missing_objects_have_exit_code_4(in_cloud: Cafcat, cloud: Cloud, cloud_bucket: Bucket) -> None:
    assert "or create it first" in in_cloud("ingest", f"{cloud.scheme}://no-such-bucket", code=4).err
    assert "no such object or folder" in in_cloud("ingest", f"{cloud_bucket.url}/nothing", code=4).err
    in_cloud.extra["CAFCAT_STORE"] = f"{cloud.scheme}://no-such-bucket/chunks"
    assert "no-such-bucket" in in_cloud("ingest", "in", code=4).err
    assert "or create it first" in in_cloud("store", "check", in_cloud.extra["CAFCAT_STORE"], code=4).err


def test_refused_credentials_show_no_secret(azure: Cloud, cafcat: Cafcat) -> None:
    secret = "dGhpcyBpcyBhIHdyb25nIGtleQ=="  # noqa: S105
    bucket = Bucket(azure, f"refused-{random.randrange(10**9)}")
    azure.make(bucket.name)
    bucket.write("file", b"1")
    (cafcat.folder / "file").write_bytes(b"x")
    cafcat.extra |= azure.environ() | {"CAFCAT_STORE": f"{bucket.url}/chunks", "AZURE_STORAGE_KEY": secret}
    outputs = []
    for arguments in (("ingest", bucket.url), ("ingest", "file")):
        result = cafcat(*arguments, "-q", code=12)
        assert len(result.err.splitlines()) == 1, result.err
        assert "check AZURE_STORAGE_ACCOUNT" in result.err
        outputs += [result.err, cafcat(*arguments, "--json", code=12).err]
        outputs.append(cafcat.unchecked(*arguments, "--debug").err)
    with psycopg.connect(cafcat.database_url or "") as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        for (table,) in tables:
            outputs += [row[0] for row in connection.execute(f"SELECT t::text FROM {table} AS t".encode())]
    assert not [text for text in outputs if secret in text or KEY in text]


def test_missing_credentials_have_a_hint(cafcat: Cafcat, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZURE_STORAGE_CONNECTION_STRING", "STORAGE_EMULATOR_HOST"):
        monkeypatch.delenv(name, raising=False)
    assert "set AZURE_STORAGE_ACCOUNT" in cafcat("ingest", "az://container", code=2).err


@pytest.mark.slow
def test_5000_objects_and_a_large_one(in_cloud: Cafcat, cloud_bucket: Bucket, tmp_path: Path) -> None:
    """Several pages of a listing, and an object of 300 MB in and out."""
    files = {f"in/{number % 40:02}/{number:06}": b"%d" % number for number in range(5000)}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(cloud_bucket.write, files, files.values()))
    large = random.Random(1).randbytes(3_000_000) * 100
    cloud_bucket.write("in/large", large)
    summary = in_cloud("ingest", f"{cloud_bucket.url}/in", "--target-size", "400MB", "--json").documents[-1][
        "summary"
    ]
    assert (summary["files_added"], summary["chunks_committed"]) == (5001, 1)
    in_cloud("get", "in/large", "-o", "out")
    assert (in_cloud.folder / "out").read_bytes() == large
    in_cloud("extract", "in/07", "-C", "out7")
    found = {
        str(path.relative_to(in_cloud.folder / "out7")): path.read_bytes()
        for path in (in_cloud.folder / "out7").rglob("*")
        if path.is_file()
    }
    assert found == {key: data for key, data in files.items() if key.startswith("in/07/")}
    assert "1 ok" in in_cloud("verify", "--level", "data").text
    again = in_cloud("ingest", f"{cloud_bucket.url}/in", "--json").documents[-1]["summary"]
    assert again["files_unchanged"] == 5001
