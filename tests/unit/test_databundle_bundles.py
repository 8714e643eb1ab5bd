"""Bundles as folders: shard files, the index that LevelDB wrote, reading, verifying."""

import random
import sys
from pathlib import Path

import pytest

from cafcat.errors import (
    Conflict,
    Corrupt,
    InvalidInput,
    NotFound,
    NotInstalled,
    Refused,
    SourceFailed,
    StoreFailed,
    Unsupported,
)
from cafcat.formats.databundle.bundles.bundle import Bundle, NewBundleFile, UserData, shard_path, write_bundle
from cafcat.formats.databundle.bundles.compression import (
    METHODS,
    compress_record,
    decompress_record,
    max_stored_bytes,
)
from cafcat.formats.databundle.bundles.index import BundleIndex
from cafcat.formats.databundle.decoding import MAX_ZERO_RUNS
from cafcat.formats.databundle.layout import (
    HEAD_BYTES,
    LARGE_BYTES,
    RECORD_BYTES,
    config_key,
    encode_config,
    file_key,
    parse_head,
    record_key,
)
from cafcat.formats.databundle.messages import messages
from cafcat.formats.databundle.rows import record_value
from cafcat.model import ProblemKind
from cafcat.support.checksums import crc32c
from tests.worlds.archives.bundles import foreign_bundle, hide_leveldb, inline_shard, leveldb, rows_of, spans_alone

NOISE = random.Random(8).randbytes(2 << 20)
FILES = {
    **{f"folder{n % 3}/file{n}": b"line %d\n" % n * (n * 7) for n in range(60)},
    "large": NOISE,
    "zeros": bytes(5 * RECORD_BYTES),
    "mixed": NOISE[:300_000] + bytes(4 * RECORD_BYTES) + b"end",
    "empty": b"",
}
COMPRESSIONS = pytest.mark.parametrize("compression", sorted(METHODS))


def new_files() -> list[NewBundleFile]:
    files = [NewBundleFile(path, content) for path, content in FILES.items()]
    return [*files, NewBundleFile("folder0", None, UserData("type.example/Mode", b"\x01"))]


def contents(folder: Path) -> dict[str, bytes]:
    with Bundle(folder) as bundle:
        return {file.path: b"".join(bundle.open(file.path)) for file in bundle.files() if not file.is_directory}


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def change_row(folder: Path, key: bytes, value: bytes | None) -> None:
    database = leveldb().DB(str(folder / "index"))
    if value is None:
        database.delete(key)
    else:
        database.put(key, value)
    database.close()


@COMPRESSIONS
@pytest.mark.parametrize(("shards", "workers"), [(1, 1), (4, 2), (100, 3)])
def test_bundle_is_written_and_read_back(tmp_path: Path, compression: str, shards: int, workers: int) -> None:
    summary = write_bundle(tmp_path / "b", new_files(), shards=shards, workers=workers, compression=compression)
    assert (summary.files, summary.directories) == (len(FILES), 1)
    assert summary.data_bytes == sum(map(len, FILES.values()))
    paths = [shard_path(tmp_path / "b", shard) for shard in range(shards)]
    assert summary.stored_bytes == sum(path.stat().st_size for path in paths)
    assert contents(tmp_path / "b") == FILES
    with Bundle(tmp_path / "b") as bundle:
        assert bundle.shards == shards
        check = bundle.verify(workers)
    assert check == (len(FILES) + 1, summary.data_bytes, [])


@COMPRESSIONS
def test_equal_files_give_equal_shards(tmp_path: Path, compression: str) -> None:
    for name, workers in (("a", 1), ("b", 3)):
        write_bundle(tmp_path / name, new_files(), shards=3, workers=workers, compression=compression)
    for shard in range(3):
        assert shard_path(tmp_path / "a", shard).read_bytes() == shard_path(tmp_path / "b", shard).read_bytes()


def test_the_index_is_read_by_leveldb(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b", new_files(), shards=2)
    database = leveldb().DB(str(tmp_path / "b" / "index"), create_if_missing=False)
    rows = dict(database.iterator(verify_checksums=True))
    database.close()
    config = messages().BundleConfig.FromString(rows.pop(b"\x01"))
    assert (config.version_magic, config.shard_count, config.compression_method) == ("daBundleV1", 2, 3)
    files = {key: value for key, value in rows.items() if key[0] == 2}
    assert files.keys() == {file_key(file.path) for file in new_files()}
    large = messages().FileMetadata.FromString(files[file_key("large")])
    assert (large.type, large.uncompressed_size, large.crc32c) == (1, len(NOISE), crc32c(NOISE))
    folder = messages().FileMetadata.FromString(files[file_key("folder0")])
    assert (folder.type, folder.uncompressed_size, folder.user_data.value) == (2, 0, b"\x01")
    records = [messages().RecordMetadata.FromString(value) for key, value in rows.items() if key[0] == 3]
    assert len(records) + len(files) == len(rows)
    assert {record.all_zeros for record in records} == {False, True}
    assert record_key(large.shard_index, large.shard_uncompressed_offset) in rows


def test_data_that_are_not_compressed_need_no_rows(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b", new_files(), compression="none")
    with Bundle(tmp_path / "b") as bundle:
        large = bundle.file("large")
    assert large.offset % 4096 == 0
    data = shard_path(tmp_path / "b", 0).read_bytes()
    assert data[HEAD_BYTES + large.offset :][: len(NOISE)] == NOISE
    database = leveldb().DB(str(tmp_path / "b" / "index"))
    assert not list(database.iterator(prefix=b"\x03"))
    database.close()


def test_heads_of_shards(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b", new_files(), shards=2)
    header = parse_head(shard_path(tmp_path / "b", 1).read_bytes())
    assert (header.shard_index, header.shard_count, header.external_metadata) == (1, 2, True)


def test_files_of_the_disk(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(NOISE)
    write_bundle(tmp_path / "b", [NewBundleFile("x", tmp_path / "file"), NewBundleFile("y", b"after")])
    assert contents(tmp_path / "b") == {"x": NOISE, "y": b"after"}


def test_user_data_are_read_back(tmp_path: Path) -> None:
    user_data = UserData("type.googleapis.com/some.Message", bytes(range(256)))
    write_bundle(tmp_path / "b", [NewBundleFile("a", b"x", user_data), NewBundleFile("b", b"")])
    with Bundle(tmp_path / "b") as bundle:
        assert [file.user_data for file in bundle.files()] == [user_data, None]


def test_missing_file_is_not_found(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b", [NewBundleFile("a", b"x")])
    with Bundle(tmp_path / "b") as bundle, pytest.raises(NotFound):
        list(bundle.open("b"))


def test_invalid_bundles_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused):
        write_bundle(tmp_path / "b", [NewBundleFile("nul\0", b"")])
    with pytest.raises(InvalidInput, match="each name only once"):
        write_bundle(tmp_path / "b", [NewBundleFile("a", b""), NewBundleFile("a", None)])
    with pytest.raises(InvalidInput, match="none, snappy, zlib"):
        write_bundle(tmp_path / "b", [], compression="zstd")
    with pytest.raises(InvalidInput):
        write_bundle(tmp_path / "b", [], shards=0)
    assert not (tmp_path / "b").exists()


def test_a_folder_that_is_not_empty(tmp_path: Path) -> None:
    write_bundle(tmp_path, [])
    with pytest.raises(Conflict):
        write_bundle(tmp_path, [])


def test_incomplete_bundle_is_corrupt(tmp_path: Path) -> None:
    missing = NewBundleFile("b", tmp_path / "missing")
    with pytest.raises(SourceFailed) as caught:
        write_bundle(tmp_path / "b", [NewBundleFile("a", b"x"), missing], shards=2, workers=2)
    assert caught.value.path == "b"
    with pytest.raises(Corrupt, match="so the bundle is incomplete"):
        Bundle(tmp_path / "b")


def test_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        Bundle(tmp_path)


def test_a_bundle_is_open_once(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b", [])
    with Bundle(tmp_path / "b"), pytest.raises(StoreFailed):
        Bundle(tmp_path / "b")


@COMPRESSIONS
def test_verify_reports_each_damaged_file(tmp_path: Path, compression: str) -> None:
    write_bundle(tmp_path / "b", new_files(), shards=2, compression=compression)
    with Bundle(tmp_path / "b") as bundle:
        large = bundle.file("large")
    path = shard_path(tmp_path / "b", large.shard)
    overwrite(path, path.read_bytes().index(NOISE[500_000:500_016]), b"other")
    with Bundle(tmp_path / "b") as bundle:
        (problem,) = bundle.verify(2).problems
        assert (problem.path, problem.kind) == ("large", ProblemKind.CORRUPT)
        with pytest.raises(Corrupt) as caught:
            list(bundle.open("large"))
        assert caught.value.path == "large"


def test_verify_reports_missing_truncated_and_foreign_shards(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b", new_files(), shards=4)
    paths = [shard_path(tmp_path / "b", shard) for shard in range(4)]
    paths[0].unlink()
    paths[1].write_bytes(paths[1].read_bytes()[: HEAD_BYTES + 100])
    paths[2].write_bytes(paths[3].read_bytes())
    with Bundle(tmp_path / "b") as bundle:
        problems = bundle.verify(2).problems
    assert {problem.path for problem in problems} >= {"shard-00000000", "shard-00000002"}
    assert any(
        "span ends before the end of the file" in problem.message and problem.path in FILES for problem in problems
    )
    assert not any("shard-00000003" in problem.message for problem in problems)


def test_verify_continues_after_an_unsupported_file(tmp_path: Path) -> None:
    files = [("many", (b"x" + bytes(7)) * 2000), ("next", b"after")]
    foreign_bundle(tmp_path / "b", files, "zlib", record_bytes=4)
    with Bundle(tmp_path / "b") as bundle:
        with pytest.raises(Unsupported, match="too many runs of zero records"):
            list(bundle.open("many"))
        check = bundle.verify()
    assert [(problem.path, problem.kind) for problem in check.problems] == [("many", ProblemKind.UNREADABLE)]
    assert (check.files, check.data_bytes) == (2, 5)


def test_head_with_many_rows_is_read(tmp_path: Path) -> None:
    files = [(f"file{n}", b"%d" % n) for n in range(3000)]
    foreign_bundle(tmp_path / "b", files, "zlib", record_bytes=100)
    shard = inline_shard(files, "zlib", record_bytes=100)
    assert int.from_bytes(shard[4:8], "little") > 64 << 10
    shard_path(tmp_path / "b", 0).write_bytes(shard)
    assert contents(tmp_path / "b") == dict(files)


BAD_ROWS = {
    "config, cut": (config_key(), b"\x0a\xff"),
    "config of another version": (config_key(), b""),
    "file, no message": (file_key("large"), b"\xff"),
    "file of a shard that is not there": (file_key("large"), b"\x08\x01\x10\x63"),
    "file of no type": (file_key("large"), b"\x20\x05"),
    "file beyond the data": (file_key("large"), b"\x08\x01\x18" + b"\xff" * 9 + b"\x01" + b"\x20\x05"),
    "file of many bytes": (file_key("large"), b"\x08\x01\x20" + b"\xff" * 9 + b"\x01"),
    "record, no message": (record_key(0, 0), b"\xff"),
    "record beyond the end": (record_key(0, 0), record_value(0, 1 << 63, 0)),
    "record in another": (record_key(0, 0), record_value(0, 100, 0)),
    "record of another offset": (record_key(0, 0), record_value(5, 0, 0)),
    "record of zeros": (record_key(0, 0), record_value(0, None, 0)),
    "no record": (record_key(0, 0), None),
}


@pytest.mark.parametrize("what", BAD_ROWS)
def test_an_index_that_makes_no_sense(tmp_path: Path, what: str) -> None:
    write_bundle(tmp_path / "b", new_files())
    change_row(tmp_path / "b", *BAD_ROWS[what])
    problems = []
    try:
        with Bundle(tmp_path / "b") as bundle:
            problems += bundle.verify().problems
    except (Corrupt, Unsupported) as error:
        problems.append(str(error))
    assert problems


def test_a_record_that_has_no_end_is_not_made(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b", [NewBundleFile("zeros", bytes(RECORD_BYTES))])
    change_row(tmp_path / "b", record_key(0, 1 << 50), record_value(1 << 50, 0, 0))
    with Bundle(tmp_path / "b") as bundle, pytest.raises(Corrupt, match="a gap or an overlap"):
        list(bundle.open("zeros"))


def test_records_of_a_size_that_is_too_large(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b", new_files())
    config = messages().BundleConfig.FromString(encode_config(3, 1))
    config.record_size = 1 << 40
    change_row(tmp_path / "b", config_key(), config.SerializeToString())
    with Bundle(tmp_path / "b") as bundle, pytest.raises(Unsupported):
        list(bundle.open("large"))


def test_bundle_with_an_enormous_number_of_shards(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b", new_files())
    change_row(tmp_path / "b", config_key(), encode_config(3, 1 << 62))
    with Bundle(tmp_path / "b") as bundle:
        (problem,) = bundle.verify().problems
    assert problem.path == "shard-00000000"
    assert "another bundle" in problem.message


def test_an_index_that_leveldb_refuses(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b", new_files())
    (tmp_path / "b" / "index" / "CURRENT").write_bytes(b"MANIFEST-999999\n")
    with pytest.raises((Corrupt, StoreFailed), match="index of the bundle"):
        Bundle(tmp_path / "b")


@pytest.mark.parametrize("name", ["snappy", "zlib"])
@pytest.mark.parametrize("data", [b"ab", NOISE[:RECORD_BYTES], b"text " * 50_000])
def test_records_are_found_before_padding(name: str, data: bytes) -> None:
    stored = compress_record(METHODS[name], data)
    assert len(stored) <= max_stored_bytes(len(data))
    for padding in (b"", b"\0", bytes(4095), bytes(9000)):
        assert decompress_record(METHODS[name], stored + padding, RECORD_BYTES) == data
    with pytest.raises(ValueError, match=r".+"):
        decompress_record(METHODS[name], stored, len(data) - 1)
    for wrong in (stored[:-1], b"\x01" + stored, b"junk" * 10):
        with pytest.raises(ValueError, match=r".+"):
            decompress_record(METHODS[name], wrong, RECORD_BYTES)


def test_libraries_that_are_missing_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(NotInstalled, match=r"cramjam.*\.\[databundle\]"):
        write_bundle(tmp_path / "b", [], compression="snappy")
    hide_leveldb(monkeypatch)
    with pytest.raises(NotInstalled, match="plyvel"):
        write_bundle(tmp_path / "b", [])


def test_the_index_has_rows_before_and_after_records(tmp_path: Path) -> None:
    index = BundleIndex(tmp_path, create=True)
    with index.batch() as batch:
        for n in (0, 10, 20):
            batch.put(record_key(1, n), b"%d" % n)
        batch.put(b"\x04", b"")
    assert [next(index.records(1, n))[1] for n in (0, 9, 10, 25)] == [b"0", b"0", b"10", b"20"]
    assert list(index.records(0, 5)) == list(index.records(2, 5)) == []
    index.close()


def test_a_large_file_begins_a_record(tmp_path: Path) -> None:
    files = [NewBundleFile("a", b"x"), NewBundleFile("b", NOISE[:LARGE_BYTES]), NewBundleFile("c", b"y")]
    write_bundle(tmp_path / "b", files)
    database = leveldb().DB(str(tmp_path / "b" / "index"))
    offsets = [int.from_bytes(key[9:]) for key in database.iterator(prefix=b"\x03", include_value=False)]
    database.close()
    assert offsets == [0, 1, *range(1 + RECORD_BYTES, 1 + LARGE_BYTES, RECORD_BYTES), 1 + LARGE_BYTES]


def test_file_with_many_runs_of_zeros_can_be_adopted(tmp_path: Path) -> None:
    sparse = (b"x" * RECORD_BYTES + bytes(RECORD_BYTES)) * (MAX_ZERO_RUNS + 6) + bytes(3 * RECORD_BYTES)
    files = [NewBundleFile("a", sparse), NewBundleFile("b", sparse), NewBundleFile("c", b"c" * LARGE_BYTES)]
    write_bundle(tmp_path / "b", files)
    zeros = [key for key, value in rows_of(tmp_path / "b").items() if key[0] == 3 and value.endswith(b"\x20\x01")]
    assert len(zeros) == 2 * MAX_ZERO_RUNS
    expected = {file.path: file.content for file in files}
    assert contents(tmp_path / "b") == spans_alone(tmp_path / "b") == expected


def test_a_long_run_of_zeros_is_one(tmp_path: Path) -> None:
    sparse = (b"x" * RECORD_BYTES + bytes(RECORD_BYTES)) * MAX_ZERO_RUNS + bytes(9 * RECORD_BYTES)
    write_bundle(tmp_path / "b", [NewBundleFile("a", sparse)])
    zeros = [key for key, value in rows_of(tmp_path / "b").items() if key[0] == 3 and value.endswith(b"\x20\x01")]
    assert len(zeros) == MAX_ZERO_RUNS + 9
