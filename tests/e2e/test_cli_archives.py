"""inspect of all formats, convert and export: output, exit codes and leftovers."""

import io
import json
import os
import re
import resource
import signal
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cafcat.formats import registry as formats
from cafcat.formats.car.cid import RAW
from cafcat.formats.chunkio.records_writer import RecordWriter
from cafcat.formats.clp.header import Header
from cafcat.formats.clp.metadata import ARCHIVE_INFO, RANGE_INDEX, Packet
from cafcat.formats.clp.packing import pack_head
from cafcat.operations.convert.run import ConvertReport
from cafcat.operations.export.run import ExportReport
from cafcat.testing.formats import BytesArchive, ListSink, pack
from tests.e2e.conftest import CLI_PAGE, TREE, WAITING_LOCKS, Cafcat, documented_keys, write_tree
from tests.worlds.archives.car_archives import cid, directory, file, leaf, v1
from tests.worlds.archives.written_formats import WRITTEN
from tests.worlds.servers.s3_server import S3Server
from tests.worlds.waiting import PATIENCE_SECONDS, wait_until

NAMES = {formats.by_name(name).suffix: name for name in WRITTEN}
NOWHERE = "postgresql://nobody@127.0.0.1:1/none"


@pytest.fixture
def alone(tmp_path: Path) -> Cafcat:
    """The command without a catalog."""
    return Cafcat(tmp_path, NOWHERE)


def in_archive(path: Path) -> dict[str, bytes]:
    archive = BytesArchive(path.read_bytes(), str(path))
    reader = formats.detect(archive).reader(archive)
    return {entry.path: b"".join(reader.open(entry)) for entry in reader.entries()}


def left_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_all_keys_are_documented() -> None:
    assert {field.name for field in fields(ExportReport)} <= documented_keys("export")
    assert {field.name for field in fields(ConvertReport)} <= documented_keys("convert")


@pytest.mark.parametrize("suffix", NAMES)
def test_exported_tree_is_listed_and_converted_without_a_catalog(
    filled: Cafcat, alone: Cafcat, suffix: str
) -> None:
    out = alone.folder / f"out{suffix}"
    result = filled("export", "tree", "-o", out)
    count = len(TREE)
    said = rf"exported {count} files \(\S+ MB\) as of \S+Z to {NAMES[suffix]}: .*/out{suffix}, \S+ [kM]B\n"
    assert re.fullmatch(said, result.text)
    assert result.err == ""
    assert in_archive(out) == TREE
    documents = alone("inspect", out, "--json").documents
    listed = {document["path"]: document for document in documents}
    assert {path: one["size_bytes"] for path, one in listed.items()} == {p: len(c) for p, c in TREE.items()}
    for document in filled("ls", "-R", "--json").documents:
        found = listed[document["path"]]
        assert (found["crc32c"], found["modified_at"]) == (document["crc32c"], document["modified_at"])
    converted = alone("convert", out, "back.caf").text
    assert re.fullmatch(rf"converted {count} files \(\S+ MB\) from {NAMES[suffix]} to caf: .*, \S+ MB\n", converted)
    assert in_archive(alone.folder / "back.caf") == TREE
    assert left_in(alone.folder) == {out.name, "back.caf"}
    assert filled("export", "tree/folder", "tree/a.txt", "-q", "-f", "-o", out).out == b""
    assert sorted(in_archive(out)) == ["tree/a.txt", "tree/folder/c.txt", "tree/folder/deep/d.TXT"]


def test_json_output(filled: Cafcat, alone: Cafcat) -> None:
    out = alone.folder / "x"
    document = filled("export", "tree/folder", "tree/b.bin", "-o", out, "--format", "car", "--json").document
    assert set(document) == {field.name for field in fields(ExportReport)}
    assert (document["files"], document["bytes"], document["format"]) == (3, 2001 + 256, "car")
    assert (document["output"], document["size_bytes"]) == (str(out), out.stat().st_size)
    assert document["prefixes"] == ["tree/folder", "tree/b.bin"]
    document = alone("convert", "x", "y.cio", "--json").document
    assert set(document) == {field.name for field in fields(ConvertReport)}
    assert (document["input"], document["input_format"]) == (str(out), "car")
    assert (document["format"], document["files"], document["bytes"]) == ("chunkio", 3, 2001 + 256)
    assert document["size_bytes"] == (alone.folder / "y.cio").stat().st_size


def test_inspect_shows_decodings(filled: Cafcat, alone: Cafcat) -> None:
    filled("export", "tree", "-o", alone.folder / "x.cio")
    filled("export", "tree", "-o", alone.folder / "x.car")
    filled("export", "tree", "-o", alone.folder / "x.caf")
    for document in alone("inspect", "x.cio", "--json").documents:
        assert document["content_bytes"] == document["size_bytes"] == len(TREE[document["path"]])
        assert document["end_byte"] - document["start_byte"] > document["size_bytes"]
        assert document["decoding"]
    decoded = {one["path"]: one.get("decoding") for one in alone("inspect", "x.car", "--json").documents}
    assert decoded == dict.fromkeys(TREE) | {"tree/big.dat": "sections"}
    assert all("decoding" not in one for one in alone("inspect", "x.caf", "--json").documents)
    [line] = [line for line in alone("inspect", "-l", "x.cio").lines if line.endswith("tree/a.txt")]
    assert line.split()[2] == str(len(TREE["tree/a.txt"]))


def clp_archive() -> bytes:
    """Return a clp-s archive with three sections, whose contents are not checked."""
    import msgpack

    ranges = msgpack.packb([{"s": 0, "e": 9, "f": {"_filename": "a\nb.log"}}])
    packets = [Packet(ARCHIVE_INFO, msgpack.packb({"num_segments": 1})), Packet(RANGE_INDEX, ranges)]
    head = pack_head(Header((0, 4, 1), 1000, 0, 0), packets, [("x", 3), ("y", 0), ("z", 5)])
    return head + b"xxxzzzzz"


def test_verbose_output_of_each_format(alone: Cafcat) -> None:
    a, b = leaf(b"first"), leaf(b"second")
    tree = directory((b"a", a[0]), (b"b", b[0]))
    large = file(11, a[0], b[0])
    (alone.folder / "tree.car").write_bytes(v1([tree[0]], [tree, a, b]))
    (alone.folder / "large.car").write_bytes(v1([large[0]], [large, b, a]))
    (alone.folder / "x.clp").write_bytes(clp_archive())
    result = alone("inspect", "-v", "tree.car")
    assert result.lines == ["a", "b"]
    first, root = result.err.splitlines()
    assert re.fullmatch(r"cafcat: /.*/tree\.car: format car, version 1, \d+ bytes \(\d+ B\)", first)
    assert re.fullmatch(r"cafcat: root: bafybei\w+", root)
    assert len(alone("inspect", "--blocks", "tree.car").lines) == 3
    [document] = alone("inspect", "large.car", "--json").documents
    assert (document["size_bytes"], document["decoding"]) == (11, f"dag {document['path']}")
    about, *entries = alone("inspect", "x.clp", "-v", "--json").documents
    assert [entry["path"] for entry in entries] == ["x", "y", "z"]
    archive = about["archive"]
    assert (archive["format"], archive["version"], archive["log_bytes"]) == ("clp-s", "0.4.1", 1000)
    assert [packet["type"] for packet in archive["packets"]] == [0, 1, 3]
    assert archive["ranges"] == [{"file_name": "a\nb.log", "start": 0, "end": 9}]
    said = alone("inspect", "x.clp", "-v").err.splitlines()
    assert "format clp-s, version 0.4.1, log bytes 1000" in said[0]
    assert said[1] == "cafcat: packet: type 0, size bytes 15"
    assert said[-1] == "cafcat: range: file name a b.log, start 0, end 9"
    assert alone("convert", "x.clp", "again.clp", "-q").out == b""
    assert (alone.folder / "again.clp").read_bytes() == clp_archive()
    text = CLI_PAGE.read_text().split("`inspect` has the same")[1].split("`stat` adds")[0]
    about = [alone("inspect", name, "-v", "--json").documents[0]["archive"] for name in ("tree.car", "x.clp")]
    for key in {key for archive in about for key in archive} | {"content_bytes", "decoding"}:
        assert f"`{key}`" in text


def padded_cars(folder: Path) -> None:
    a, b = leaf(b"first"), leaf(b"second")
    unknown = cid(RAW, 0x1B, bytes(32)), b"keccak"
    tree = directory((b"a", a[0]), (b"b", b[0]), (b"k", unknown[0]))
    whole = v1([tree[0]], [tree, unknown, a, b])
    archives = {"cut": whole[:-1], "padded": whole + bytes(999), "twice": whole + whole}
    for name, data in archives.items():
        (folder / f"{name}.car").write_bytes(data)


def test_a_damaged_car_is_listed_up_to_the_damage(alone: Cafcat) -> None:
    padded_cars(alone.folder)
    cut = alone("inspect", "cut.car", code=5)
    assert cut.lines == ["a", "k"]
    assert "exceeds the data" in cut.err
    padded = alone("inspect", "padded.car", code=5)
    assert padded.lines == ["a", "b", "k"]
    assert "if the archive is padded with zeros, use --zero-padding to end it here" in padded.err
    twice = alone("inspect", "twice.car", "--json", code=5)
    assert [document["path"] for document in twice.documents] == ["a", "b", "k"]
    assert "another CAR begins here" in twice.error["message"]
    assert alone("inspect", "--zero-padding", "padded.car").lines == ["a", "b", "k"]
    assert "exceeds the data" in alone("convert", "cut.car", "out.caf", code=5).err
    assert "--zero-padding" in alone("convert", "padded.car", "out.caf", code=5).err
    result = alone("convert", "--zero-padding", "padded.car", "out.caf")
    assert "cannot check the hashes of 1 blocks: Keccak-256 (0x1b)" in result.err
    assert in_archive(alone.folder / "out.caf") == {"a": b"first", "b": b"second", "k": b"keccak"}
    assert "only CAR archives can" in alone("inspect", "--zero-padding", "out.caf", code=2).err


def test_inspect_counts_blocks_that_are_not_checked(alone: Cafcat) -> None:
    padded_cars(alone.folder)
    assert "cannot check the hashes of 1 blocks: Keccak-256 (0x1b)" in (
        alone("inspect", "--zero-padding", "padded.car").err
    )
    *_, last = alone("inspect", "--zero-padding", "padded.car", "--json").documents
    assert (last["remark"]["kind"], last["remark"]["blocks"]) == ("unchecked_hash", 1)
    text = CLI_PAGE.read_text().split("`inspect` has the same")[1].split("`stat` adds")[0]
    assert all(f"`{key}`" in text for key in last["remark"])


def test_a_named_format_skips_detection(alone: Cafcat) -> None:
    sink = ListSink()
    writer = RecordWriter(sink)
    for n in range(3):
        writer.write(bytes(16), b"%d" % n * 5)
    (alone.folder / "x.cio").write_bytes(bytes(16) + sink.data[16:])
    assert "--input-format" in alone("inspect", "x.cio", code=1).err
    names = [f"x.cio/{begin:016x}" for begin in (0, 61, 106)]
    assert alone("inspect", "--format", "chunkio", "x.cio").lines == names
    assert alone("inspect", "--format", "car", "x.cio", "--json", code=5).error["kind"] == "corrupt"
    assert "no format 'zip'" in alone("inspect", "--format", "zip", "x.cio", code=2).err
    alone("convert", "--input-format", "chunkio", "x.cio", "out.caf")
    assert list(in_archive(alone.folder / "out.caf").values()) == [b"00000", b"11111", b"22222"]


@pytest.mark.parametrize("name", ["x.caf", "X.CAF"])
def test_every_damaged_caf_is_exit_code_5(alone: Cafcat, name: str) -> None:
    data, _, finished = pack(formats.by_name("caf"), [("a", b"first", 1), ("b", b"second", 2)])
    index = data[finished.index_start_byte : -4]
    version = data.replace(b'"1.0"', b'"1.1"')
    for damaged in (
        data[:-1],
        data[:-30],
        data + b"\n",
        data[:-5] + b"x" + data[-4:],
        data[: len(data) - len(index)],
    ):
        (alone.folder / name).write_bytes(damaged)
        assert alone("inspect", name, "--json", code=5).error["kind"] == "corrupt"
    (alone.folder / name).write_bytes(version)
    assert "the index is damaged" in alone("inspect", name, code=5).err


def test_wrong_arguments_are_refused(filled: Cafcat, alone: Cafcat) -> None:
    out = alone.folder
    assert "--output" in filled("export", "tree", code=2).err
    refused = filled("export", "tree", "nothing", "-o", out / "x.caf", code=4)
    assert "no such file or folder" in refused.err
    assert "the pattern '**/nothing' means this name in any folder" in refused.err
    error = filled("export", "tree", "-o", out / "x.rar", "--json", code=2).error
    assert (error["kind"], error["path"]) == ("invalid_input", str(out / "x.rar"))
    assert "caf (.caf), car (.car), chunkio (.cio)" in error["hint"]
    assert "only the program clp-s" in filled("export", "tree", "-o", out / "x.clp", code=1).err
    error = filled("export", "tree", "-o", out / "x.tar.gz", "--json", code=2).error
    assert error["hint"] == f"use `cafcat export tree -o - --format tar | gzip > {out / 'x.tar.gz'}`"
    for verb in (
        ["snapshot", "-o", "-"],
        ["convert", "x.caf", "-", "--format", "car"],
    ):
        assert "cannot be standard output" in filled(*verb, code=2).err
    refused = filled("export", "tree", "-o", out / "x", "--format", "rar", code=2).err
    assert "no format 'rar'; available formats: caf, car, " in refused
    assert "clp-s" not in refused
    misnamed = filled("export", "tree", "-o", filled.folder / "misnamed.ZIP", "--format", "tar").err
    assert "cafcat: warning: misnamed.ZIP has the suffix of zip, but is written as tar\n" in misnamed
    assert "--format tar" in filled("export", "tree", "-o", "-", code=2).err
    assert "cannot be written to this output" in filled("export", "-o", "-", "--format", "car", code=1).err
    assert left_in(out) == set()
    filled("export", "tree", "-q", "-o", out / "x.caf")
    assert "already" in filled("export", "tree", "-o", out / "x.caf", code=1).err
    (out / "text").write_text("hello")
    assert alone("convert", "text", "y.caf", "--json", code=1).error["kind"] == "unsupported"
    assert alone("convert", "none", "y.caf", code=4)
    assert alone("convert", "x.caf", "y.zip", "--json", code=2).error["kind"] == "invalid_input"
    assert "only the program clp-s" in alone("convert", "x.caf", "y.clp", code=1).err
    assert alone("convert", "x.caf", "x.caf", "--json", code=1).error["kind"] == "conflict"
    alone("convert", "x.caf", "x.caf", "--overwrite")
    assert in_archive(out / "x.caf") == TREE
    assert "only CARs have blocks" in alone("inspect", "--blocks", "x.caf", code=2).err
    assert left_in(out) == {"x.caf", "text"}


def test_export_to_standard_output(filled: Cafcat) -> None:
    result = filled("export", "tree/folder", "tree/[ab].*", "-o", "-", "--format", "tar")
    with tarfile.open(fileobj=io.BytesIO(result.out), mode="r|") as tar:
        found = {info.name: (tar.extractfile(info) or pytest.fail("no file")).read() for info in tar}
    names = ("tree/a.txt", "tree/b.bin", "tree/folder/c.txt", "tree/folder/deep/d.TXT")
    assert found == {name: TREE[name] for name in names}
    assert re.fullmatch(r"cafcat: exported 4 files .* to tar: standard output, 20.5 kB\n", result.err)
    result = filled("export", "tree", "-o", "-", "--format", "zip", "--json")
    with zipfile.ZipFile(io.BytesIO(result.out)) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == TREE
    summary = json.loads(result.err)["summary"]
    assert (summary["output"], summary["files"], summary["size_bytes"]) == ("-", len(TREE), len(result.out))
    assert filled("export", "tree", "-o", "-", "--format", "caf", "-q").err == ""
    assert "no file has this name or matches" in filled("export", "none*", "-o", "-", "--format", "tar", code=4).err


def test_export_refuses_a_terminal(filled: Cafcat) -> None:
    primary, terminal = os.openpty()
    command = filled.command("export", "-o", "-", "--format", "tar")
    done = subprocess.run(
        command, cwd=filled.folder, env=filled.environment, stdout=terminal, stderr=subprocess.PIPE, check=False
    )
    os.close(primary)
    os.close(terminal)
    assert (done.returncode, b"not written to a terminal" in done.stderr) == (2, True)


def test_a_damaged_file_ends_an_export_to_standard_output(cafcat: Cafcat) -> None:
    write_tree(cafcat.folder)
    cafcat("ingest", "tree")
    place = cafcat("locate", "tree/b.bin", "--json").document
    with Path(place["object"]).open("r+b") as archive:
        archive.seek(place["start_byte"])
        archive.write(b"damaged")
    result = cafcat("export", "tree", "-o", "-", "--format", "tar", "--json", code=5)
    assert (result.error["kind"], result.error["path"]) == ("corrupt", "tree/b.bin")
    assert not result.out.endswith(bytes(1024))
    cafcat("export", "tree", "-o", "x.zip", code=5)
    assert list(cafcat.folder.glob("*x.zip*")) == []


def test_damage_is_exit_5_and_leaves_nothing(filled: Cafcat, alone: Cafcat) -> None:
    filled("export", "tree", "-q", "-o", alone.folder / "x.caf")
    data = bytearray((alone.folder / "x.caf").read_bytes())
    data[data.index(b"first file")] ^= 1
    (alone.folder / "x.caf").write_bytes(data)
    error = alone("convert", "x.caf", "y.car", "--json", code=5).error
    assert (error["kind"], error["path"]) == ("corrupt", "tree/a.txt")
    assert error["chunk"] == str(alone.folder / "x.caf")
    assert left_in(alone.folder) == {"x.caf"}


def test_damage_of_a_chunk_ends_an_export(cafcat: Cafcat) -> None:
    (cafcat.folder / "tree").mkdir()
    (cafcat.folder / "tree/a").write_bytes(b"content of a")
    (cafcat.folder / "tree/b").write_bytes(b"content of b")
    cafcat("ingest", "tree")
    archive = Path(cafcat("locate", "tree/a", "--json").document["object"])
    archive.chmod(0o600)
    archive.write_bytes(archive.read_bytes().replace(b"content of a", b"content of x"))
    error = cafcat("export", "-o", "out.car", "--json", code=5).error
    assert (error["kind"], error["path"]) == ("corrupt", "tree/a")
    assert left_in(cafcat.folder) - {"home"} == {"tree", "store"}


@contextmanager
def hangup_as_usual() -> Iterator[None]:
    """Reset SIGHUP meanwhile, as in a terminal. nohup may have started these tests."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


@contextmanager
def waiting(cafcat: Cafcat, *command: str | Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a command that waits, in the middle of its work, for a lock that the test holds."""
    assert cafcat.database_url
    blocked = f"{WAITING_LOCKS} AND relation = 'file_locations'::regclass"
    with psycopg.connect(cafcat.database_url) as holder, psycopg.connect(cafcat.database_url) as other:
        other.autocommit = True
        holder.execute("LOCK TABLE file_locations IN ACCESS EXCLUSIVE MODE")
        with cafcat.popen(*command) as process:
            try:
                wait_until(lambda: other.execute(blocked).fetchone())
                yield process
            finally:
                holder.rollback()
                process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda one: one.name)
def test_an_interrupted_export_leaves_nothing(filled: Cafcat, tmp_path: Path, number: signal.Signals) -> None:
    with hangup_as_usual(), waiting(filled, "export", "tree", "-o", tmp_path / "taken.car") as process:
        assert has_unnamed_files(tmp_path) or len(list(tmp_path.iterdir())) == 1
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
        assert (process.returncode, errors) == (130, b"cafcat: interrupted; nothing was written\n")
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda one: one.name)
@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["snapshot", "-o"], "interrupted; nothing was written"),
        (["backup", "--to"], "interrupted; no backup was written"),
        (["get", "tree/a.txt", "-o"], "interrupted"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_other_verbs_that_write_one_file_leave_nothing(
    filled: Cafcat, tmp_path: Path, command: list[str], message: str, number: signal.Signals
) -> None:
    with hangup_as_usual(), waiting(filled, *command, tmp_path / "taken") as process:
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
        assert (process.returncode, errors.decode()) == (130, f"cafcat: {message}\n")
    assert [path for path in tmp_path.rglob("*") if ".partial" in path.name] == []


def test_a_killed_export_leaves_no_archive(filled: Cafcat, tmp_path: Path) -> None:
    """Only a file with a temporary name may remain."""
    (tmp_path / "old.car").write_bytes(b"old")
    with waiting(filled, "export", "tree", "-f", "-o", tmp_path / "old.car") as process:
        process.kill()
        assert process.wait(PATIENCE_SECONDS) == -signal.SIGKILL
    assert (tmp_path / "old.car").read_bytes() == b"old"
    left = left_in(tmp_path) - {"old.car"}
    if has_unnamed_files(tmp_path):
        assert left == set()
    else:
        assert re.fullmatch(r"\.cafcat-[0-9a-f]{16}\.partial", "".join(left))


def has_unnamed_files(folder: Path) -> bool:
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_WRONLY))
    except (AttributeError, OSError):
        return False
    return True


def has_written(process: int, folder: Path) -> bool:
    """Return True if a process has written to a file without its final name in a folder."""
    if not has_unnamed_files(folder):
        return any(path.stat().st_size for path in folder.glob(".cafcat-*.partial"))
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        with suppress(OSError):
            has_data = os.readlink(descriptor).startswith(f"{folder}/#") and descriptor.stat().st_size
            if has_data:
                return True
    return False


def endless(path: Path) -> None:
    """Write an archive with a sparse file, which takes long to copy."""
    size_bytes = 200 << 30
    index = f'{{"format_version":"1.0","files":{{"x":{{"start_byte":0,"end_byte":{size_bytes}}}}}}}'.encode()
    with path.open("wb") as archive:
        archive.seek(size_bytes)
        archive.write(index + struct.pack("<I", len(index)))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda one: one.name)
def test_an_interrupted_conversion_leaves_nothing(alone: Cafcat, number: signal.Signals) -> None:
    endless(alone.folder / "endless.caf")
    process = alone.popen("convert", "endless.caf", "out.car")
    wait_until(lambda: has_written(process.pid, alone.folder))
    process.send_signal(number)
    _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, errors) == (130, b"cafcat: interrupted; nothing was written\n")
    assert left_in(alone.folder) == {"endless.caf"}


def with_largest_file(size_bytes: int) -> Any:
    """Return a function that limits the size of files, as on a full disk."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))


def test_no_room_is_one_line_and_leaves_nothing(filled: Cafcat, alone: Cafcat) -> None:
    filled("export", "-q", "-o", alone.folder / "x.caf")
    for cafcat, command in (
        (filled, ("export", "-o", str(alone.folder / "out.car"))),
        (alone, ("convert", "x.caf", "out.car")),
    ):
        process = cafcat.popen(*command, preexec_fn=with_largest_file(1 << 20))
        out, errors = process.communicate(timeout=PATIENCE_SECONDS)
        assert (process.returncode, out) == (1, b"")
        assert re.fullmatch(
            rb"cafcat: the output cannot be written: File too large \(path '.*out\.car'\)\n", errors
        )
        assert left_in(alone.folder) == {"x.caf"}


LOADED = """
import sys
from cafcat.cli.app import run
code = run(sys.argv[1:])
found = {"boto3", "botocore", "obstore", "urllib3", "sqlalchemy", "tomllib"} & set(sys.modules)
sys.exit(f"loaded: {found}" if found else code)
"""


@pytest.mark.parametrize("command", [("inspect", "x.caf"), ("convert", "x.caf", "y.car")], ids=lambda one: one[0])
def test_files_need_nothing_of_s3_nor_a_configuration(
    filled: Cafcat, alone: Cafcat, command: tuple[str, ...]
) -> None:
    filled("export", "-q", "-o", alone.folder / "x.caf")
    alone.extra["CAFCAT_CONFIG"] = "/nowhere.toml"
    process = [sys.executable, "-W", "error", "-c", LOADED, *command]
    done = subprocess.run(process, cwd=alone.folder, env=alone.environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_times_and_names_come_through_all_formats(filled: Cafcat, alone: Cafcat) -> None:
    filled("export", "tree", "-q", "-o", alone.folder / "0.caf")
    for n, suffix in enumerate((".car", ".cio", ".car", ".caf")):
        alone("convert", next(alone.folder.glob(f"{n}.*")), f"{n + 1}{suffix}", "-q")
    assert (alone.folder / "0.caf").read_bytes() == (alone.folder / "4.caf").read_bytes()
    times = [document["modified_at"] for document in alone("inspect", "4.caf", "--json").documents]
    assert len(set(times)) == len(TREE)


@pytest.mark.usefixtures("s3_environment")
def test_archives_in_a_bucket(filled: Cafcat, alone: Cafcat, s3_server: S3Server, s3_bucket: str) -> None:
    """The configuration has the address of the bucket's server, as for sources and stores."""
    filled("export", "tree", "-q", "-o", alone.folder / "x.car")
    body = (alone.folder / "x.car").read_bytes()
    s3_server.client().put_object(Bucket=s3_bucket, Key="some//odd key", Body=body)
    (alone.folder / "home").mkdir()
    (alone.folder / "home/cafcat.toml").write_text(
        f'[stores.there]\nurl = "s3://{s3_bucket}"\nendpoint_url = "{s3_server.endpoint_url}"\n'
    )
    alone.extra["AWS_ENDPOINT_URL"] = "http://127.0.0.1:9"
    url = f"s3://{s3_bucket}/some//odd key"
    documents = alone("inspect", url, "--json").documents
    assert {one["path"]: one["size_bytes"] for one in documents} == {path: len(c) for path, c in TREE.items()}
    assert {one["object"] for one in documents} == {url}
    assert alone("convert", url, "x.caf", "--json").document["input"] == url
    assert in_archive(alone.folder / "x.caf") == TREE
    assert alone("inspect", f"s3://{s3_bucket}/nothing", "--json", code=4).error["kind"] == "not_found"
    assert "is a folder, not an archive" in alone("convert", f"s3://{s3_bucket}", "y.caf", code=2).err
    alone.extra["AWS_SECRET_ACCESS_KEY"] = "this-is-a-very-wrong-secret"  # noqa: S105
    assert alone("convert", url, "y.caf", "--json", code=12).error["kind"] == "credentials"
    assert left_in(alone.folder) == {"home", "x.caf", "x.car"}
