"""Objects with wrong sizes or endless nesting: an error of one line, and little memory.

They are read in every way that reads an object against its index. test_caf_reader.py has the refusals of the CAF
reader itself.
"""

import os
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cafcat.catalog.files.mapping import Mapping
from cafcat.errors import Corrupt, Unsupported
from cafcat.formats.caf.format import CAF
from cafcat.operations.index_reading import read_index
from cafcat.operations.own_index import WholeObject
from cafcat.progress import Progress
from cafcat.stores.base import StoredObject
from cafcat.stores.local.store import LocalStore

GIB = 1 << 30
MIB = 1 << 20
U32 = 0xFFFF_FFFF
HEAD = b'{"format_version":"1.0","files":{'


def whole_of(store: LocalStore) -> None:
    list(WholeObject(store, "x.caf", CAF, Progress()).entries())


def index_of(store: LocalStore) -> None:
    with Mapping(1) as mapping:
        read_index(StoredObject(store, "x.caf"), CAF, mapping, None)


READINGS: dict[str, Callable[[LocalStore], None]] = {"recover": whole_of, "rebuild": index_of}


def entries(count: int, members: bytes) -> bytes:
    return HEAD + b",".join(b'"%d":{%b}' % (n, members) for n in range(count)) + b"}}"


DEEP: dict[str, bytes] = {
    "lists": b'{"x":' + b"[" * 3 * MIB + b"}",
    "objects": b'{"x":' + b'{"":' * MIB + b"}",
    "closed lists": b'{"x":' + b"[" * MIB + b"]" * MIB + b',"format_version":"1.0","files":{}}',
    "in an entry": HEAD + b'"a":{"x":' + b'[{"":' * MIB + b"}}}",
}
LONG: dict[str, bytes] = {
    "a name": HEAD + b'"' + b"n" * 3 * MIB + b'":{"start_byte":0,"end_byte":0}}}',
    "a name of escapes": HEAD + b'"' + rb"\u0041" * MIB + b'":{"start_byte":0,"end_byte":0}}}',
    "a number": HEAD + b'"a":{"start_byte":' + b"1" * 3 * MIB + b',"end_byte":0}}}',
    "a string without end": b'{"' + b"x" * 3 * MIB + b"}",
}
SENSELESS: dict[str, bytes] = {
    "no checksums": entries(20_000, b'"start_byte":0,"end_byte":0'),
    "shared bytes": entries(2, b'"start_byte":0,"end_byte":5,"crc32c":2591144780'),
    "beyond the data": entries(20_000, b'"start_byte":0,"end_byte":9223372036854775807,"crc32c":0'),
    "an odd name": HEAD + b'"\\u0000":{"start_byte":0,"end_byte":0,"crc32c":0}}}',
    "a name for no catalog": HEAD + b'"' + b"n" * 2049 + b'":{"start_byte":0,"end_byte":0,"crc32c":0}}}',
    "a long name": HEAD + b'"' + b"n" * 900_000 + b'":{"start_byte":0,"end_byte":0,"crc32c":0}}}',
    "a long name, no checksum": HEAD + b'"' + b"n" * 900_000 + b'":{"start_byte":0,"end_byte":0}}}',
}


@contextmanager
def refused(kind: type[Exception], most_bytes: int) -> Iterator[None]:
    """Expect an error of one line, and at most this much memory."""
    tracemalloc.start()
    try:
        with pytest.raises(kind) as caught:
            yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 4000
    assert peak < most_bytes


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("name", [*DEEP, *LONG, *SENSELESS])
def test_indexes_that_nest_grow_or_make_no_sense(
    store: LocalStore, tmp_path: Path, reading: str, name: str
) -> None:
    index = (DEEP | LONG | SENSELESS)[name]
    (tmp_path / "x.caf").write_bytes(b"hello" + index + len(index).to_bytes(4, "little"))
    with refused(Unsupported if name in LONG else Corrupt, 16 * MIB):
        READINGS[reading](store)


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("claim", [GIB, U32])
def test_a_small_object_whose_footer_claims_gigabytes(
    store: LocalStore, tmp_path: Path, reading: str, claim: int
) -> None:
    (tmp_path / "x.caf").write_bytes(b"hello" + entries(1, b"") + claim.to_bytes(4, "little"))
    with refused(Corrupt, MIB):
        READINGS[reading](store)


@pytest.mark.parametrize(("reading", "size_bytes"), [("recover", GIB), ("recover", U32), ("rebuild", 64 * MIB)])
def test_a_large_object_that_is_all_index_and_all_nothing(
    store: LocalStore, tmp_path: Path, reading: str, size_bytes: int
) -> None:
    with (tmp_path / "x.caf").open("wb") as file:
        file.truncate(size_bytes)
        file.seek(0, os.SEEK_END)
        file.write(b"}" + (size_bytes + 1 & U32).to_bytes(4, "little"))
    with refused(Corrupt, 16 * MIB):
        READINGS[reading](store)
