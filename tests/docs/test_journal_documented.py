"""The worked examples in docs/formats/journal.md and backup.md equal the written objects."""

import base64
import io
import re
import tarfile
from pathlib import Path
from uuid import UUID

import cafcat
from cafcat.catalog.history.journal import JournalChunk, JournalFile, JournalOrigin, JournalRecord, JournalRun
from cafcat.catalog.transfer.dump import TABLES
from cafcat.formats.caf.format import CAF
from cafcat.model import JournalKind
from cafcat.operations.backup.keys import backup_time
from cafcat.stores.local.store import LocalStore
from cafcat.support.checksums import crc64nvme
from cafcat.testing.formats import pack
from cafcat.writing.journal import _encoded, journal_key
from cafcat.writing.journal_reader import JournalObject

FORMATS = Path(__file__).parents[2] / "docs" / "formats"
UUIDS = UUID("0b5e4a43-4c28-4b29-9a5c-3f8a70b0a1ce"), UUID("6f1f8c2e-9d0b-4f0e-8a57-2f6d1f9b7c11")

CATALOG = UUID("5d0c8a52-7f4e-4c5f-9d1c-2f8f4a6b9e01")


def examples() -> dict[str, bytes]:
    page = (FORMATS / "journal.md").read_text()
    return {
        key: text.encode() for key, text in re.findall(r"`(journal/\d+-\S+?)`:\n```\n(.*?)```$", page, re.M | re.S)
    }


def records() -> list[tuple[JournalRecord, list[JournalOrigin], list[JournalFile]]]:
    data, _, archive = pack(CAF, [("hello.txt", b"hello\n", 1_700_000_000_000_000_000), ("ü", b"", None)])
    checksum = base64.b64encode(crc64nvme(data).to_bytes(8)).decode()
    spans = archive.size_bytes, archive.data_bytes, archive.index_start_byte, archive.index_end_byte
    times = [
        f"2026-11-21T{time}Z"
        for time in ("10:00:00.000000", "10:00:07.250000", "11:30:00.000000", "12:00:00.000000")
    ]
    chunk = JournalChunk(
        UUIDS[0], "caf", f"{UUIDS[0]}.caf", *spans, archive.file_count, checksum, archive.index_crc32c, times[0]
    )
    run = JournalRun(7, "2026-11-21T09:59:58.000000Z", "packer-1", "0.1.0")
    moves = UUID("a3a7f0f4-8f5c-4d0e-9b61-0d3c2a1f6e55"), UUID("c1d1c0de-2b6a-4a53-8f0a-6f7f1f0b9d02")
    moved = chunk._replace(uuid=moves[1], object_key=f"{moves[1]}.caf", begun_at=times[2])
    removal = UUID("e2c0a1de-53f1-4b52-9f3b-4cf1f6ad0a77")
    return [
        (
            JournalRecord(41, UUIDS[1], JournalKind.COMMIT, times[1], (), chunk, CATALOG, run),
            [],
            [JournalFile("ü", UUIDS[0], 6)],
        ),
        (
            JournalRecord(42, removal, JournalKind.REMOVE, times[2], (), None, CATALOG),
            [],
            [JournalFile("hello.txt", UUIDS[0], 0)],
        ),
        (
            JournalRecord(43, moves[0], JournalKind.MOVE, times[3], (), moved, CATALOG),
            [JournalOrigin(1, run, times[1]), JournalOrigin(1, None, times[2])],
            [],
        ),
    ]


def test_documented_records_equal_written_ones() -> None:
    written = {
        journal_key(record.sequence, record.uuid): b"".join(_encoded(record, origins, files))
        for record, origins, files in records()
    }
    assert examples() == written


def test_the_records_can_be_read(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    for (key, data), (record, origins, files) in zip(examples().items(), records(), strict=True):
        upload = store.create(key)
        upload.write(data)
        upload.commit()
        found = JournalObject(store, key, len(data))
        assert found.record == record
        assert list(found.origins()) == origins
        assert list(found.files()) == files


def test_backup_begins_as_documented(database_url: str, tmp_path: Path) -> None:
    page = (FORMATS / "backup.md").read_text()
    with cafcat.open(database_url=database_url, home=tmp_path, store=str(tmp_path / "store")) as repository:
        report = repository.backup()
    data = (tmp_path / "store" / report.object_key).read_bytes()
    [row] = re.findall(r"^00000000  ((?:[0-9a-f]{2} ?| )+)\|", page, re.M)
    assert data[:16] == bytes.fromhex(row)
    with tarfile.open(fileobj=io.BytesIO(data)) as found:
        filled = ["catalog_identity/000001.copy.gz", "stores/000001.copy.gz"]
        assert found.getnames() == ["backup.json", *filled, "manifest.json"]
        head = found.extractfile("backup.json")
        assert head is not None
        text = head.read().decode()
    [start] = re.findall(r"^```\n(\{\n.*?)```$", page, re.M | re.S)
    assert re.sub(r'"\d{4}"', "", text).startswith(re.sub(r'"\d{4}"', "", start))
    for name in re.findall(r'^ "(\w+)"', text, re.M):
        assert f"`{name}`" in page
    assert all(table in page for table in TABLES)
    assert backup_time("backups/20261121T164500.123456Z-" + str(UUIDS[0]) + ".tar") == "2026-11-21T16:45:00.123456Z"
