"""The index of a chunk, compared with its rows by the native part and by Python: always the same findings."""

import struct
from unittest import mock

from hypothesis import example, given
from hypothesis import strategies as st

from cafcat.catalog.binary_copy import EPOCH_MICROSECONDS
from cafcat.catalog.chunks import rows as chunk_rows
from cafcat.catalog.chunks.rows import ChunkRow, ChunkRows
from cafcat.formats.caf.format import CAF
from cafcat.model import Entry, Finding, FindingKind
from cafcat.operations.verify.findings import Findings
from cafcat.operations.verify.index_check import compare_index
from cafcat.progress import Progress
from cafcat.testing.formats import BytesArchive, pack
from tests.worlds.native import both_ways, needs_library

pytestmark = needs_library

HEAD = struct.Struct(">hiqiqiqiqiqi")
NULL = b"\xff\xff\xff\xff"
NO_TIME = -(1 << 63)


def encoded(rows: list[ChunkRow]) -> bytes:
    """Return rows as COPY_ROWS does."""
    parts = [b"PGCOPY\n\xff\r\n\0" + bytes(8)]
    for path, start, end, checksum, time, is_live, content_bytes, decoding in rows:
        name = path.encode()
        stored = NO_TIME if time is None else time - EPOCH_MICROSECONDS
        parts += [HEAD.pack(8, 8, start, 8, end, 8, checksum, 8, stored, 8, is_live, len(name)), name]
        if decoding is None:
            parts.append(NULL + NULL)
        else:
            parts.append(struct.pack(">iqi", 8, content_bytes, len(decoding)) + decoding.encode())
    return b"".join([*parts, b"\xff\xff"])


def row_of(entry: Entry) -> ChunkRow:
    time = None if entry.modified_ns is None else entry.modified_ns // 1000
    assert entry.crc32c is not None
    return ChunkRow(entry.path, entry.start_byte, entry.end_byte, entry.crc32c, time, True)


def findings(archive: bytes, rows: list[ChunkRow], block_bytes: int) -> list[Finding]:
    found = Findings()
    with (
        mock.patch.object(chunk_rows, "_BLOCK_BYTES", block_bytes),
        ChunkRows(part for part in [encoded(rows)]) as stored,
    ):
        compare_index(CAF.reader(BytesArchive(archive)), stored, found, Progress())
    return found.listed()


names = st.lists(st.text('ab/é\n"', min_size=1, max_size=4), unique=True, max_size=30)
times = st.sampled_from([None, 0, 999, 1000, -1, -1001, 10**18 + 5])
changes = st.lists(
    st.tuples(
        st.integers(0, 40),
        st.sampled_from(["drop", "twice", "path", "shorter", "joined", "start", "end", "crc", "time", "size"]),
    )
)


@given(names, st.lists(times, min_size=30, max_size=30), changes, st.sampled_from([1, 70, 300, 1 << 20]))
@example(["ab", "b"], [-1001] * 30, [], 1 << 20)
@example(["ab", "b"], [0] * 30, [(0, "drop")], 1 << 20)
@example(["ab", "b"], [0] * 30, [(1, "drop")], 1 << 20)
@example(["ab", "b"], [0] * 30, [(0, "path")], 1 << 20)
@example(["ab", "b"], [0] * 30, [(0, "shorter")], 1 << 20)
@example(["ab", "b"], [0] * 30, [(0, "joined")], 1 << 20)
@example(["ab", "b"], [0] * 30, [(0, "start")], 1 << 20)
@example(["ab", "b"], [0] * 30, [(0, "end")], 1 << 20)
@example(["ab", "b"], [0] * 30, [(0, "crc")], 1 << 20)
@example(["ab", "b"], [0] * 30, [(0, "time")], 1 << 20)
@example(["ab", "b"], [0] * 30, [(0, "size")], 1 << 20)
def test_any_rows(
    paths: list[str], modified: list[int | None], changed: list[tuple[int, str]], block_bytes: int
) -> None:
    files = [(path, path.encode() * 3, time) for path, time in zip(paths, modified, strict=False)]
    archive, entries, _ = pack(CAF, files)
    rows = [row_of(entry) for entry in entries]
    for place, way in changed:
        if place >= len(rows):
            continue
        row = rows[place]
        if way == "drop":
            del rows[place]
        elif way == "twice":
            rows.insert(place, row)
        else:
            rows[place] = {
                "path": row._replace(path=row.path + "x"),
                "shorter": row._replace(path=row.path[:-1]),
                "joined": row._replace(path=f"{row.path}\n{entries[min(place + 1, len(entries) - 1)].path}"),
                "start": row._replace(start_byte=row.start_byte + 1),
                "end": row._replace(end_byte=row.end_byte + 1),
                "crc": row._replace(crc32c=row.crc32c ^ 1),
                "time": row._replace(modified_us=5 if row.modified_us is None else None),
                "size": row._replace(content_bytes=7, decoding="zstd"),
            }[way]
    result = both_ways(lambda: findings(archive, rows, block_bytes))
    assert isinstance(result, list)
    is_same = rows == [row_of(entry) for entry in entries]
    assert (not result) == is_same
    assert all(finding.kind is FindingKind.MAPPING for finding in result)
