"""Reading of journal records: all other objects are refused, in bounded memory."""

import base64
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from cafcat.errors import CafcatError, Corrupt, Unsupported
from cafcat.stores.base import Store
from cafcat.stores.local.store import LocalStore
from cafcat.support.checksums import crc32c
from cafcat.writing.journal import journal_key, parse_journal_key
from cafcat.writing.journal_reader import JournalObject, read_head


def encoded(head: dict[str, Any], *files: dict[str, Any], foot: dict[str, Any] | None = None) -> bytes:
    body = b"".join(json.dumps(document).encode() + b"\n" for document in (head, *files))
    return body + json.dumps(foot or {"files": len(files), "crc32c": crc32c(body)}).encode() + b"\n"


KEY = "journal/00000000000000000007-11111111-1111-1111-1111-111111111111.jsonl"
HEAD: dict[str, Any] = {
    "cafcat_journal": 1,
    "sequence": 7,
    "kind": "remove",
    "happened_at": "2026-11-21T10:00:00.123456Z",
}
FILE = {"path": "a", "chunk": "22222222-2222-2222-2222-222222222222", "start_byte": 0}
CHUNK = {
    "uuid": "22222222-2222-2222-2222-222222222222",
    "format": "caf",
    "object_key": "22222222-2222-2222-2222-222222222222.caf",
    "size_bytes": 100,
    "data_bytes": 10,
    "index_start_byte": 10,
    "index_end_byte": 96,
    "file_count": 1,
    "crc64nvme": base64.b64encode(bytes(8)).decode(),
    "index_crc32c": 5,
    "begun_at": "2026-11-21T10:00:00.123456Z",
}
COMMIT = HEAD | {"kind": "commit", "chunk": CHUNK}
LYING = {
    "empty": b"",
    "no end": encoded(HEAD)[:-1],
    "only a head": json.dumps(HEAD).encode() + b"\n",
    "no json": b"{\n",
    "deep": b"[" * 60_000 + b"\n",
    "many digits": b'{"cafcat_journal":' + b"1" * 60_000 + b"}\n",
    "long line": b'{"cafcat_journal":1,"x":"' + b"x" * 70_000 + b'"}\n',
    "never a line": b"x" * 3_000_000,
    "other sequence": encoded(HEAD | {"sequence": 8}),
    "later version": encoded(HEAD | {"cafcat_journal": 3}),
    "name of a store": encoded(HEAD | {"stores": [{"uuid": CHUNK["uuid"], "url": "x", "chunks": True, "name": 5}]}),
    "no kind": encoded(HEAD | {"kind": "delete"}),
    "list as kind": encoded(HEAD | {"kind": ["remove"]}),
    "no time": encoded(HEAD | {"happened_at": "2026-02-30T10:00:00.123456Z"}),
    "other time": encoded(HEAD | {"happened_at": "now"}),
    "remove with a chunk": encoded(HEAD | {"chunk": CHUNK}),
    "commit without a chunk": encoded(HEAD | {"kind": "commit"}),
    "sizes": encoded(COMMIT | {"chunk": CHUNK | {"size_bytes": 5}}),
    "huge size": encoded(COMMIT | {"chunk": CHUNK | {"size_bytes": 1 << 64}}),
    "float": encoded(COMMIT | {"chunk": CHUNK | {"size_bytes": 1e2}}),
    "bool": encoded(COMMIT | {"chunk": CHUNK | {"file_count": True}}),
    "uuid": encoded(COMMIT | {"chunk": CHUNK | {"uuid": "{22222222-2222-2222-2222-222222222222}"}}),
    "checksum": encoded(COMMIT | {"chunk": CHUNK | {"crc64nvme": "x"}}),
    "key": encoded(COMMIT | {"chunk": CHUNK | {"object_key": "../x"}}),
    "format": encoded(COMMIT | {"chunk": CHUNK | {"format": None}}),
    "count": encoded(HEAD, FILE, foot={"files": 2, "crc32c": crc32c(b"")}),
    "crc": encoded(HEAD, FILE, foot={"files": 1, "crc32c": 0}),
    "no path": encoded(HEAD, FILE | {"path": ""}),
    "long path": encoded(HEAD, FILE | {"path": "x" * 2049}),
    "nul": encoded(HEAD, FILE | {"path": "a\0"}),
    "surrogate": encoded(HEAD, FILE | {"path": "\ud800"}),
    "negative": encoded(HEAD, FILE | {"start_byte": -1}),
    "twice": encoded(HEAD, FILE, FILE),
    "order": encoded(HEAD, FILE | {"path": "b"}, FILE),
    "not utf-8": encoded(HEAD).replace(b"remove", b"re\xffove"),
}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return LocalStore(tmp_path)


def write(store: Store, data: bytes) -> int:
    store.delete(KEY)
    upload = store.create(KEY)
    upload.write(data)
    upload.commit()
    return len(data)


@pytest.mark.parametrize("name", LYING)
def test_a_lying_record_is_refused(store: Store, name: str) -> None:
    size = write(store, LYING[name])
    with pytest.raises((Corrupt, Unsupported)) as caught:
        JournalObject(store, KEY, size)
    assert caught.value.chunk == store.locate(KEY)


def test_unchanged_records_are_accepted(store: Store) -> None:
    found = JournalObject(store, KEY, write(store, encoded(HEAD, FILE, FILE | {"path": "b"})))
    assert [file.path for file in found.files()] == ["a", "b"]
    assert (found.file_count, found.record.sequence, found.record.chunk) == (2, 7, None)
    found = JournalObject(store, KEY, write(store, encoded(COMMIT)))
    assert found.record.chunk is not None
    assert found.record.chunk._asdict() | {"uuid": CHUNK["uuid"]} == CHUNK
    assert read_head(store, KEY, write(store, encoded(COMMIT)[:-4])) == found.record


def test_every_changed_byte_is_noticed(store: Store) -> None:
    whole = encoded(COMMIT, FILE, FILE | {"path": "b"})
    for position in range(len(whole)):
        damaged = whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :]
        with pytest.raises(CafcatError):
            JournalObject(store, KEY, write(store, damaged))
    for length in range(len(whole)):
        with pytest.raises(CafcatError):
            JournalObject(store, KEY, write(store, whole[:length]))


@pytest.mark.parametrize("block", [b"x", b"{}\n"])
def test_huge_object_needs_little_memory(store: Store, block: bytes) -> None:
    size = write(store, encoded(HEAD)[: encoded(HEAD).index(b"\n") + 1] + block * (10_000_000 // len(block)))
    tracemalloc.start()
    try:
        with pytest.raises(Corrupt):
            JournalObject(store, KEY, size)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


def test_record_with_many_files_is_read(store: Store) -> None:
    paths = [f"{number:05d}/{'x' * 100}" for number in range(15_000)]
    found = JournalObject(store, KEY, write(store, encoded(HEAD, *(FILE | {"path": path} for path in paths))))
    assert [file.path for file in found.files()] == paths


def test_which_keys_are_of_records() -> None:
    found = parse_journal_key(KEY)
    assert found is not None
    assert journal_key(*found) == KEY
    for key in (
        KEY.replace("journal/", "x/"),
        KEY.replace(".jsonl", ""),
        KEY.replace("0000007", "0000000"),
        KEY.replace("00000000000000000007", "09223372036854775807"),
        KEY.replace("1111", "111"),
        KEY.replace("11111111-", "1111111A-"),
    ):
        assert parse_journal_key(key) is None, key
