"""adopt, inspect and convert of DataBundles: output and exit codes."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cafcat.formats.databundle.bundles.bundle import NewBundleFile, write_bundle
from tests.e2e.conftest import CLI_PAGE, Cafcat
from tests.e2e.test_cli_archives import NOWHERE, in_archive
from tests.worlds.archives.bundles import everything
from tests.worlds.servers.s3_server import S3Server
from tests.worlds.waiting import PATIENCE_SECONDS, wait_until

FILES = {f"d/{n}": b"content %d\n" % n * 500 for n in range(5)} | {"zeros": bytes(700_000), "empty": b""}


@pytest.fixture
def alone(tmp_path: Path) -> Cafcat:
    """The command without a catalog, and a bundle."""
    cafcat = Cafcat(tmp_path, NOWHERE)
    bundle(cafcat)
    return cafcat


def bundle(cafcat: Cafcat, compression: str = "zlib") -> dict[str, bytes]:
    new = [NewBundleFile(path, content) for path, content in FILES.items()]
    write_bundle(cafcat.folder / "b", [*new, NewBundleFile("d", None)], shards=2, compression=compression)
    return everything(cafcat.folder / "b")


def test_adopt_reports_its_effects(cafcat: Cafcat) -> None:
    before = bundle(cafcat)
    result = cafcat("adopt", "b", "--prefix", "old", "-v")
    assert (result.code, result.text) == (0, "adopted 2 archives: 7 files, 725.0 kB\n")
    assert "b/shard-00000000: databundle, 4 files" in result.err
    assert cafcat("get", "old/d/1", "-o", "-").out == FILES["d/1"]
    assert cafcat("get", "old/d/1", "--range", "5-15", "-o", "-").out == FILES["d/1"][5:16]
    assert cafcat("cat", "old/d/0", "old/d/2").out == FILES["d/0"] + FILES["d/2"]
    located = cafcat("locate", "old/d/1", "--json").document
    assert located["decoding"].startswith("zlib 262144 ")
    again = cafcat("adopt", "b", code=3)
    assert again.err.count("the archive was adopted before") == 2
    assert cafcat("verify", "--level", "data").code == 0
    assert everything(cafcat.folder / "b") == before


def test_a_folder_that_is_no_bundle(alone: Cafcat) -> None:
    (alone.folder / "plain").mkdir()
    for command in (("inspect", "plain"), ("convert", "plain", "out.caf")):
        assert "plain is a folder, not an archive; name an archive in this folder" in alone(*command, code=2).err
    (alone.folder / "b/index/CURRENT").write_bytes(b"nothing\n")
    error = alone("inspect", "b", "--json", code=5).error
    assert (error["kind"], error["chunk"]) == ("corrupt", str(alone.folder / "b/index/CURRENT"))


def test_inspect_lists_all_shards(alone: Cafcat) -> None:
    before = everything(alone.folder / "b")
    assert sorted(alone("inspect", "b").lines) == sorted(FILES)
    about, *documents = alone("inspect", "b", "-v", "--json").documents
    shards = [str(alone.folder / f"b/shard-0000000{n}") for n in range(2)]
    assert {one["path"]: one["size_bytes"] for one in documents} == {p: len(c) for p, c in FILES.items()}
    assert {one["object"] for one in documents} == set(shards)
    assert about["archive"] == {
        "object": f"{alone.folder}/b",
        "format": "databundle",
        "size_bytes": sum(Path(shard).stat().st_size for shard in shards),
        "version": "daBundleV1",
        "shards": 2,
        "compression": "zlib",
        "record_size": 262_144,
        "files": 7,
        "directories": 1,
    }
    text = CLI_PAGE.read_text().split("`inspect` has the same")[1].split("`stat` adds")[0]
    assert set(about["archive"]) <= set(re.findall(r"`(\w+)`", text))
    [said] = alone("inspect", "b", "-v").err.splitlines()
    assert "format databundle, version daBundleV1, shards 2, compression zlib, record size 262144, files 7" in said
    one = alone("inspect", "b/shard-00000001", "-l")
    assert [line.split()[-1] for line in one.lines] == list(FILES)[1::2]
    assert everything(alone.folder / "b") == before


def test_convert_rewrites_it(alone: Cafcat) -> None:
    before = everything(alone.folder / "b")
    result = alone("convert", "b", "out.caf")
    assert re.fullmatch(
        r"converted 7 files \(725\.0 kB\) from databundle to caf: out\.caf, 72\d\.\d kB\n", result.text
    )
    assert in_archive(alone.folder / "out.caf") == FILES
    alone("convert", "b/shard-00000001", "out.car", "-q")
    assert in_archive(alone.folder / "out.car") == dict(list(FILES.items())[1::2])
    alone("convert", "b", "out.dbs", "-q")
    assert in_archive(alone.folder / "out.dbs") == FILES
    assert everything(alone.folder / "b") == before


def test_damage_ends_a_conversion_and_leaves_nothing(alone: Cafcat) -> None:
    shard = alone.folder / "b/shard-00000001"
    data = bytearray(shard.read_bytes())
    data[4096 + 5] ^= 1
    shard.write_bytes(data)
    error = alone("convert", "b", "out.caf", "--json", code=5).error
    assert (error["kind"], error["path"]) == ("corrupt", "d/1")
    shard.unlink()
    assert "shard-00000001" in alone("convert", "b", "out.caf", code=4).err
    assert {path.name for path in alone.folder.iterdir()} == {"b"}


def killed_while_it_copies_the_index(alone: Cafcat, number: signal.Signals) -> "subprocess.Popen[bytes]":
    """Kill inspect while it copies the index, and return its process.

    A sparse table makes the copy take long. The table is removed afterwards.
    """
    table = alone.folder / "b/index/999999.ldb"
    with table.open("wb") as file:
        file.truncate(32 << 30)
    process = alone.popen("inspect", "b")
    try:
        wait_until(lambda: any((alone.folder / "tmp").glob("cafcat-index-*/999999.ldb")))
        process.send_signal(number)
        process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
        table.unlink()
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda one: one.name)
def test_copy_of_an_index_is_removed(alone: Cafcat, number: signal.Signals) -> None:
    """The process removes its copy after SIGTERM. After SIGKILL the next process removes it."""
    (alone.folder / "tmp").mkdir()
    alone.extra["TMPDIR"] = str(alone.folder / "tmp")
    process = killed_while_it_copies_the_index(alone, number)
    left = list((alone.folder / "tmp").iterdir())
    assert (process.returncode, len(left)) == ((130, 0) if number == signal.SIGTERM else (-signal.SIGKILL, 1))
    for path in left:
        os.utime(path, (0, 0))
    assert sorted(alone("inspect", "b").lines) == sorted(FILES)
    assert list((alone.folder / "tmp").iterdir()) == []


WITHOUT = """
import subprocess
import sys
sys.modules["plyvel_next"] = sys.modules["plyvel"] = None
from cafcat.cli.app import run
sys.exit(run(sys.argv[1:]))
"""


def test_a_missing_extra_is_named(alone: Cafcat) -> None:
    for command in (["inspect", "b"], ["convert", "b", "out.caf"], ["inspect", "b/shard-00000000"]):
        process = [sys.executable, "-c", WITHOUT, *command]
        done = subprocess.run(process, cwd=alone.folder, env=alone.environment, capture_output=True, text=True)
        assert (done.returncode, "pip install '.[databundle]' in a clone of cafcat" in done.stderr) == (1, True)


@pytest.mark.usefixtures("s3_environment")
def test_a_bundle_in_a_bucket(alone: Cafcat, s3_server: S3Server, s3_bucket: str) -> None:
    for name, data in everything(alone.folder / "b").items():
        s3_server.client().put_object(Bucket=s3_bucket, Key=f"deep/b/{name}", Body=data)
    alone.extra["AWS_ENDPOINT_URL"] = s3_server.endpoint_url
    url = f"s3://{s3_bucket}/deep/b"
    documents = alone("inspect", url, "--json").documents
    assert {one["path"] for one in documents} == set(FILES)
    assert {one["object"] for one in documents} == {f"{url}/shard-0000000{n}" for n in range(2)}
    assert alone("convert", f"{url}/", "out.caf", "--json").document["input"] == url
    assert in_archive(alone.folder / "out.caf") == FILES
    assert len(alone("inspect", f"{url}/shard-00000000").lines) == 4
    assert alone("inspect", f"s3://{s3_bucket}/deep", "--json", code=4).error["kind"] == "not_found"
