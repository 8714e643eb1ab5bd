"""Shards of bundles as archives: listing, decodings for the catalog, and refused shards."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cafcat.errors import CafcatError, Conflict, Corrupt, IndexMissing, NotInstalled, Unsupported
from cafcat.formats.base import UNSUPPORTED_PREFIX
from cafcat.formats.databundle import DATABUNDLE
from cafcat.formats.databundle.bundles.bundle import NewBundleFile, write_bundle
from cafcat.formats.databundle.bundles.compression import compress_record
from cafcat.formats.databundle.bundles.copied_index import open_index_copy
from cafcat.formats.databundle.bundles.record_decoding import (
    MAX_RUNS_CHARACTERS,
    decode_records,
    parse_record_decoding,
)
from cafcat.formats.databundle.bundles.shard import is_bundle
from cafcat.formats.databundle.layout import RECORD_BYTES, config_key, file_key, record_key, trailer
from cafcat.formats.databundle.messages import messages
from cafcat.formats.databundle.rows import record_value
from cafcat.model import Entry
from cafcat.stores.base import StoredFolder, StoredObject
from cafcat.stores.local.store import LocalStore
from cafcat.support.checksums import crc32c
from cafcat.testing.formats import BytesArchive, pack
from tests.worlds.archives.bundles import foreign_bundle, hide_leveldb, inline_shard, leveldb, spans_alone, stored

SHARD = "shard-00000000"
FILES = [("a", b"a" * 300), ("b", b"text of b\n" * 40), ("c", b"c")]
BOTH = pytest.mark.parametrize("compression", ["snappy", "zlib"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "bundle"


def made(folder: Path, compression: str = "zlib", **options: Any) -> None:
    foreign_bundle(folder, FILES, compression, **{"record_bytes": 128, **options})


def change(folder: Path, key: bytes, value: bytes | None) -> None:
    with leveldb().DB(str(folder / "index")) as database:
        if value is None:
            database.delete(key)
        else:
            database.put(key, value)


def entries(folder: Path) -> dict[str, Entry]:
    bundle_archive = DATABUNDLE.open_folder(stored(folder))
    assert bundle_archive is not None
    [name] = bundle_archive.names
    return {entry.path: entry for entry in bundle_archive.reader(stored(folder).open(name), name).entries()}


def opened(folder: Path, path: str) -> bytes:
    bundle_archive = DATABUNDLE.open_folder(stored(folder))
    assert bundle_archive is not None
    reader = bundle_archive.reader(stored(folder).open(SHARD), SHARD)
    [entry] = [entry for entry in reader.entries() if entry.path == path]
    return b"".join(reader.open(entry))


def test_spans_and_decodings(folder: Path) -> None:
    foreign_bundle(folder, [("a", b"a" * 100), ("zeros", bytes(600)), ("b", b"b" * 100)], "zlib", record_bytes=100)
    found = entries(folder)
    first, last = (len(compress_record(3, letter * 100)) for letter in (b"a", b"b"))
    assert found["a"][1:3] == (100, 100 + first)
    assert found["b"][1:3] == (100 + first, 100 + first + last)
    assert {path: entry.decoding for path, entry in found.items()} == {
        "a": "zlib 100 0",
        "zeros": "zlib 100 0 0+6",
        "b": "zlib 100 0",
    }
    assert found["zeros"].start_byte == found["zeros"].end_byte


def test_a_file_that_begins_and_ends_within_zeros(folder: Path) -> None:
    files = [("a", bytes(30)), ("b", bytes(130) + b"x" * 50 + bytes(220)), ("c", bytes(20))]
    foreign_bundle(folder, files, "zlib", record_bytes=100)
    assert entries(folder)["b"].decoding == "zlib 100 30 0+1,3+2"
    assert spans_alone(folder) == dict(files)


def test_about(folder: Path) -> None:
    write_bundle(folder, [NewBundleFile("a", b"x"), NewBundleFile("d", None)], shards=5, compression="none")
    bundle_archive = DATABUNDLE.open_folder(stored(folder))
    assert bundle_archive is not None
    assert bundle_archive.names == [SHARD]
    assert bundle_archive.properties() == {
        "version": "daBundleV1",
        "shards": 5,
        "compression": "none",
        "record_size": RECORD_BYTES,
        "files": 1,
        "directories": 1,
    }


def test_a_shard_finds_its_index_beside_it(folder: Path) -> None:
    made(folder)
    reader = DATABUNDLE.reader(stored(folder).open(SHARD))
    assert {entry.path: b"".join(reader.open(entry)) for entry in reader.entries()} == dict(FILES)
    with pytest.raises(IndexMissing, match="is missing"):
        DATABUNDLE.reader(BytesArchive((folder / SHARD).read_bytes()))
    (folder / "index/CURRENT").unlink()
    with pytest.raises(IndexMissing, match="is missing"):
        DATABUNDLE.reader(stored(folder).open(SHARD))
    assert DATABUNDLE.open_folder(stored(folder)) is None


def test_file_with_the_end_of_a_chunk_does_not_change_its_shard(folder: Path) -> None:
    """The forged rows belong to another chunk. Their position and checksum are right in this shard, too."""
    chunk, _, finished = pack(DATABUNDLE, [("forged", b"forged", None)])
    rows = chunk[finished.index_start_byte : finished.index_end_byte]
    content = rows + trailer(4096, crc32c(rows))
    foreign_bundle(folder, [("honest", content)], "none", record_bytes=RECORD_BYTES, data_start=4096)
    assert [entry.path for entry in DATABUNDLE.reader(stored(folder).open(SHARD)).entries()] == ["honest"]


def test_a_chunk_whose_head_is_damaged_is_listed_by_its_end(folder: Path) -> None:
    chunk, entries, _ = pack(DATABUNDLE, [("file", b"content", None)])
    folder.mkdir()
    for head in (b"other", b"daBS\xff\xff\xff\xff", b"daBS\x02\0\0\0\0\x10\0\0\xff\xff"):
        (folder / "chunk").write_bytes(head + chunk[len(head) :])
        assert list(DATABUNDLE.reader(stored(folder).open("chunk")).entries()) == entries


@BOTH
def test_rows_in_the_head_need_no_index(compression: str) -> None:
    archive = BytesArchive(inline_shard(FILES, compression, record_bytes=128, padding=[3, 0]))
    reader = DATABUNDLE.reader(archive)
    assert {entry.path: b"".join(reader.open(entry)) for entry in reader.entries()} == dict(FILES)


def test_a_head_that_is_too_large(folder: Path) -> None:
    made(folder)
    data = bytearray((folder / SHARD).read_bytes())
    data[4:8] = (1 << 30).to_bytes(4, "little")
    with pytest.raises(Unsupported, match="the head"):
        DATABUNDLE.reader(BytesArchive(bytes(data)))


BAD_ROWS: dict[str, tuple[bytes, bytes | None, str]] = {
    "no record": (record_key(0, 256), None, "a gap or an overlap"),
    "no first record": (record_key(0, 0), None, "no record contains byte 0"),
    "no last record": (record_key(0, 640), None, "no record contains byte"),
    "a record that is no message": (record_key(0, 0), b"\xff", "not a valid message"),
    "a record of another": (record_key(0, 0), record_value(128, 0, 0), "of different records"),
    "a record beyond all data": (record_key(0, 0), record_value(0, (1 << 64) - 1, 0), ""),
    "a record beyond the shard": (record_key(0, 640), record_value(640, 1 << 40, 0), ""),
    "a record in the middle of one": (record_key(0, 64), record_value(64, 0, 0), ""),
    "a record of zeros": (record_key(0, 0), record_value(0, None, 0), ""),
}


@pytest.mark.parametrize("what", BAD_ROWS)
def test_invalid_records_affect_only_their_files(folder: Path, what: str) -> None:
    made(folder)
    key, value, message = BAD_ROWS[what]
    change(folder, key, value)
    wrong = 0
    for path, content in FILES:
        try:
            assert opened(folder, path) == content
        except CafcatError as error:
            assert error.kind in ("corrupt", "unsupported")  # noqa: PT017
            assert message in str(error)  # noqa: PT017
            wrong += 1
    assert wrong


def test_records_that_are_not_one_behind_the_other_are_refused(folder: Path) -> None:
    made(folder)
    places = [record_value(offset, 10_000 - offset, 0) for offset in (0, 128)]
    change(folder, record_key(0, 0), places[0])
    change(folder, record_key(0, 128), places[1])
    reason = "the records of the file are not stored one after the other"
    assert entries(folder)["a"].decoding == UNSUPPORTED_PREFIX + reason
    with pytest.raises(Unsupported, match="one after the other"):
        opened(folder, "a")


def test_a_short_record_in_the_middle_of_a_file_is_refused(folder: Path) -> None:
    made(folder)
    change(folder, record_key(0, 100), record_value(100, 50, 0))
    with pytest.raises(Unsupported, match="does not have 128 bytes"):
        opened(folder, "a")


def test_too_many_runs_of_zeros_are_refused(folder: Path) -> None:
    files = [("many", (b"x" + bytes(7)) * 2000), ("few", (b"x" + bytes(7)) * 100)]
    foreign_bundle(folder, files, "zlib", record_bytes=4)
    with pytest.raises(Unsupported, match="too many runs of zero records"):
        opened(folder, "many")
    assert opened(folder, "few") == files[1][1]
    assert len(entries(folder)["few"].decoding or "") < MAX_RUNS_CHARACTERS


BAD_FILES = {
    "no message": (file_key("a"), b"\xff"),
    "of a shard that is not there": (file_key("a"), b"\x08\x01\x10\x63"),
    "of no type": (file_key("a"), b"\x20\x05"),
    "with a name of no folder": (b"\x02a\0\0b\0\0", b"\x08\x01"),
    "config that is no message": (config_key(), b"\x0a\xff"),
    "config of another version": (config_key(), b""),
    "config of another database": (config_key(), None),
}


@pytest.mark.parametrize("what", BAD_FILES)
def test_an_index_that_makes_no_sense_is_corrupt(folder: Path, what: str) -> None:
    made(folder)
    key, value = BAD_FILES[what]
    change(folder, key, value)
    with pytest.raises(Corrupt):
        DATABUNDLE.open_folder(stored(folder))
    with pytest.raises(Corrupt):
        DATABUNDLE.reader(stored(folder).open(SHARD))


@pytest.mark.parametrize(
    "value", [b"\x08\x01\x18" + b"\xff" * 9 + b"\x01\x20\x05", b"\x08\x01\x20" + b"\xff" * 9 + b"\x01"]
)
@pytest.mark.parametrize("compression", ["none", "snappy", "zlib"])
def test_file_beyond_all_data_fails_alone(folder: Path, compression: str, value: bytes) -> None:
    made(folder, compression)
    change(folder, file_key("a"), value)
    with pytest.raises(Corrupt):
        opened(folder, "a")
    assert opened(folder, "b") == dict(FILES)["b"]


def test_records_and_methods_that_are_not_known(folder: Path) -> None:
    made(folder)
    for size_bytes, method in ((0, 3), ((8 << 20) + 1, 3), (1 << 62, 3), (128, 0), (128, 9)):
        config = messages().BundleConfig(version_magic="daBundleV1", record_size=size_bytes, shard_count=1)
        config.compression_method = method
        change(folder, config_key(), config.SerializeToString())
        with pytest.raises(Unsupported, match="are not supported"):
            DATABUNDLE.open_folder(stored(folder))


def test_a_head_of_another_bundle(folder: Path, tmp_path: Path) -> None:
    made(folder)
    foreign_bundle(tmp_path / "other", FILES, "zlib", record_bytes=64)
    (folder / SHARD).write_bytes((tmp_path / "other" / SHARD).read_bytes())
    with pytest.raises(Corrupt, match="another bundle"):
        entries(folder)


def table_of(folder: Path) -> Path:
    """Return the table of the index, which LevelDB makes when it opens a log."""
    change(folder, b"\x09", b"")
    [table] = (folder / "index").glob("*.ldb")
    return table


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def without(path: Path) -> None:
    path.unlink()


def footer(path: Path) -> None:
    """Change the footer of a table so that its own index has petabytes."""
    data = bytearray(path.read_bytes())
    data[-48:-8] = (b"\0\0\0" + b"\xff" * 7 + b"\x0f").ljust(40, b"\0")
    path.write_bytes(data)


def block(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)


def replaced(path: Path) -> None:
    """Replace a table by a valid, smaller one."""
    other = path.parents[2] / "other"
    foreign_bundle(other, [("x", b"x")], "zlib", record_bytes=128)
    path.write_bytes(table_of(other).read_bytes())


@pytest.mark.parametrize("harm", [cut, without, footer, block, replaced])
def test_a_damaged_table_of_the_index_is_corrupt(folder: Path, harm: Callable[[Path], None]) -> None:
    made(folder)
    harm(table_of(folder))
    with pytest.raises(Corrupt):
        DATABUNDLE.open_folder(stored(folder))


def test_an_unfinished_table_that_the_index_does_not_name_is_ignored(folder: Path) -> None:
    """LevelDB leaves such a table if it is closed while it merges tables, and removes it when it is next opened."""
    made(folder)
    table = table_of(folder)
    table.with_name("000099.ldb").write_bytes(table.read_bytes()[:-9])
    assert set(entries(folder)) == {name for name, _ in FILES}


@pytest.mark.parametrize(
    "content", [b"MANIFEST-000002", b"../../../../dev/zero\n", b"\n", b"MANIFEST-1\n" * 100, b""]
)
def test_an_index_that_begins_elsewhere_is_corrupt(folder: Path, content: bytes) -> None:
    made(folder)
    (folder / "index/CURRENT").write_bytes(content)
    with pytest.raises(Corrupt, match="index of the bundle"):
        DATABUNDLE.open_folder(stored(folder))


def test_damaged_log_of_the_index_is_corrupt(folder: Path) -> None:
    """LevelDB itself would continue after the damaged rows."""
    write_bundle(folder, [NewBundleFile(f"{n:05}", b"x") for n in range(3000)])
    [log] = (folder / "index").glob("*.log")
    assert log.stat().st_size > 70_000
    data = bytearray(log.read_bytes())
    data[40_000] ^= 1
    log.write_bytes(data)
    with pytest.raises(Corrupt):
        DATABUNDLE.open_folder(stored(folder))


def test_an_index_that_is_too_large(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(folder)
    monkeypatch.setattr("cafcat.formats.databundle.bundles.copied_index._MAX_BYTES", 100)
    with pytest.raises(Unsupported, match="more than 100 bytes"):
        DATABUNDLE.open_folder(stored(folder))


def test_an_index_that_changes_while_it_is_read(folder: Path) -> None:
    made(folder)

    class Changing(StoredFolder):
        def open(self, name: str) -> Any:
            if name.endswith(".log"):
                (folder / name).unlink(missing_ok=True)
            return super().open(name)

    with pytest.raises(Conflict, match="changed while it was copied"):
        DATABUNDLE.open_folder(Changing(stored(folder)._store))


class Twofold(StoredObject):
    """A file with other content at its second read."""

    first = b"no manifest\n"

    def read_at(self, start_byte: int, end_byte: int) -> bytes:
        answer, self.first = self.first or super().read_at(start_byte, end_byte), b""
        return answer


def test_leveldb_opens_the_files_that_were_checked(folder: Path) -> None:
    made(folder)

    class Changing(StoredFolder):
        def open(self, name: str) -> StoredObject:
            return Twofold(self._store, name) if name == "index/CURRENT" else super().open(name)

    with pytest.raises(Corrupt, match="CURRENT does not name a manifest"):
        DATABUNDLE.open_folder(Changing(stored(folder)._store))


def test_index_is_listed_once(folder: Path) -> None:
    """A listing of a bucket takes a request for each thousand files."""
    made(folder)
    listings: list[str] = []

    class Counting(StoredFolder):
        def files(self, below: str) -> Iterator[tuple[str, int]]:
            listings.append(below)
            return super().files(below)

    assert DATABUNDLE.open_folder(Counting(stored(folder)._store)) is not None
    assert listings == ["index/"]


def test_folder_with_too_long_a_key_for_an_index_is_no_bundle(folder: Path) -> None:
    """The key of an index in this folder would be too long."""
    deep = "/".join(["d" * 200] * 5) + "/"
    assert not is_bundle(StoredFolder(LocalStore(folder), deep + "e" * 12 + "/"))


def test_reading_leaves_neither_changes_nor_temporary_files(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(folder)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    before = {path.name: path.stat() for path in (folder / "index").iterdir()}
    assert spans_alone(folder) == dict(FILES)
    assert {path.name: path.stat().st_mtime_ns for path in (folder / "index").iterdir()} == {
        name: status.st_mtime_ns for name, status in before.items()
    }
    assert list(temporary.iterdir()) == []


def test_copies_of_an_index_that_killed_processes_left_are_removed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(folder)
    temporary = tmp_path / "temporary"
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    for name in ("cafcat-index-left", "cafcat-index-young", "cafcat-logs-other"):
        (temporary / name).mkdir(parents=True)
        (temporary / name / "CURRENT").write_bytes(b"MANIFEST-000002\n")
    for name in ("cafcat-index-left", "cafcat-logs-other"):
        os.utime(temporary / name, (0, 0))
    with open_index_copy(stored(folder)):
        [used] = set(temporary.glob("cafcat-index-*")) - {temporary / "cafcat-index-young"}
        os.utime(used, (0, 0))
        assert DATABUNDLE.open_folder(stored(folder)) is not None
        assert used.exists()
    assert {path.name for path in temporary.iterdir()} == {"cafcat-index-young", "cafcat-logs-other"}


def test_without_leveldb_the_extra_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(folder)
    hide_leveldb(monkeypatch)
    with pytest.raises(NotInstalled, match=r"plyvel.*\.\[databundle\]"):
        DATABUNDLE.open_folder(stored(folder))


BAD_TEXTS = ["zlib 0 0", "zlib 8388609 0", "zlib 10 10", "zlib 10 0 1+1,2+1", "gzip 10 0", "zlib 10", "zlib 10 00"]


@pytest.mark.parametrize("text", BAD_TEXTS)
def test_texts_that_are_no_decoding(text: str) -> None:
    assert parse_record_decoding(text) is None
    with pytest.raises(Unsupported, match="unknown decoding"):
        list(decode_records(iter(()), Entry("a", 0, 0, 0, None, 1, text)))


def spans(decoding: str, size_bytes: int, *records: bytes) -> bytes:
    span = b"".join(records)
    blocks = (span[at : at + 7] for at in range(0, len(span), 7))
    return b"".join(decode_records(blocks, Entry("a", 0, len(span), 0, None, size_bytes, decoding)))


def test_damaged_spans_are_corrupt() -> None:
    whole, short, long = (compress_record(3, b"x" * count) for count in (10, 9, 11))
    assert spans("zlib 10 0", 15, whole, bytes(3), short) == b"x" * 15
    for wrong in (
        ("zlib 10 0", 15, short, whole),
        ("zlib 10 0", 15, long, whole),
        ("zlib 10 0", 15, whole),
        ("zlib 10 0", 15, whole, bytes(4)),
        ("zlib 10 0", 15, whole, b"\x01", whole),
        ("zlib 10 0", 10, short),
        ("zlib 10 5", 5, short),
        ("zlib 10 0", 10, b""),
        ("zlib 10 0 1+1", 10, whole),
        ("snappy 10 0", 10, whole),
        ("snappy 10 0", 15, compress_record(2, b"x" * 11), compress_record(2, b"x" * 10)),
        ("snappy 10 0", 15, compress_record(2, b"x" * 9), compress_record(2, b"x" * 10)),
        ("snappy 10 0", 10, b"\xff\x06\0\0sNaPpY" * 1000),
        ("snappy 10 0", 10, b"\x00\xff\xff\xff" + bytes(range(256)) * 100),
    ):
        with pytest.raises(Corrupt):
            spans(*wrong)


def test_without_snappy_the_extra_is_named_and_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    record = compress_record(2, b"of no other test")
    monkeypatch.setitem(sys.modules, "cramjam", None)
    for size_bytes in (5, 20):
        with pytest.raises(NotInstalled, match=r"cramjam.*\.\[databundle\]"):
            spans("snappy 16 0", size_bytes, record, record)


def test_damage_behind_a_file_does_it_no_harm() -> None:
    record = bytearray(compress_record(3, bytes(range(256)) * 30))
    record[-1] ^= 1
    assert spans("zlib 8000 0", 100, bytes(record)) == bytes(range(100))
    with pytest.raises(Corrupt):
        spans("zlib 7680 0", 7700, bytes(record), compress_record(3, b"x" * 99))


def test_decoding_in_the_catalog_is_short(folder: Path) -> None:
    files = [("sparse", (b"x" * 128 + bytes(128)) * 600)]
    foreign_bundle(folder, files, "zlib", record_bytes=128)
    assert len(entries(folder)["sparse"].decoding or "") < 4100
    assert spans_alone(folder) == dict(files)
