"""The files of a chunk, checked by the native part and by Python: always the same findings."""

import struct
from itertools import pairwise
from typing import Any
from uuid import UUID

from hypothesis import example, given
from hypothesis import strategies as st

from cafcat.catalog.chunks.rows import ChunkRows
from cafcat.catalog.chunks.verification import CheckTarget
from cafcat.model import ChunkState
from cafcat.operations.verify.data_check import DataCheck
from cafcat.operations.verify.findings import Findings
from cafcat.progress import Progress
from cafcat.support.checksums import crc32c
from tests.fuzz.targets import RawStore
from tests.worlds.native import both_ways, needs_library

pytestmark = needs_library

ROW = struct.Struct(">hiqiqiqiqiqi")
NULL = b"\xff\xff\xff\xff"
Row = tuple[str, int, int, int, str | None]
"""Path, start_byte, end_byte, CRC-32C, decoding."""


def encoded(rows: list[Row]) -> bytes:
    """Return rows as COPY_ROWS does."""
    parts = [b"PGCOPY\n\xff\r\n\0" + bytes(8)]
    for path, start, end, checksum, decoding in rows:
        name = path.encode()
        parts += [ROW.pack(8, 8, start, 8, end, 8, checksum, 8, 0, 8, 1, len(name)), name]
        if decoding is None:
            parts.append(NULL + NULL)
        else:
            parts.append(struct.pack(">iqi", 8, end - start, len(decoding)) + decoding.encode())
    return b"".join([*parts, b"\xff\xff"])


def outcome(data: bytes, rows: list[Row], block_bytes: int) -> Any:
    size, uuid, state = len(data), UUID(int=0), ChunkState.COMMITTED
    target = CheckTarget(1, None, "memory:", "k", uuid, "caf", size, size, size, len(rows), None, None, None, state)
    findings = Findings()
    with ChunkRows(part for part in [encoded(rows)]) as stored:
        check = DataCheck(RawStore(data), target, len(data), findings, Progress())  # type: ignore[arg-type]
        check._blocks = iter([data[n : n + block_bytes] for n in range(0, len(data), block_bytes)])
        check.run(stored)
    state = (check.files, check.position, check.crc64nvme, check.gaps, check.gap_count, check.has_decoded)
    return findings.listed(), state, str(check.failed)


@st.composite
def chunks(draw: st.DrawFn) -> tuple[bytes, list[Row]]:
    sizes = draw(st.lists(st.integers(0, 40), max_size=30))
    data = draw(st.binary(min_size=sum(sizes), max_size=sum(sizes) + 20))
    ends = [sum(sizes[:n]) for n in range(len(sizes) + 1)]
    rows: list[Row] = []
    for n, (first, last) in enumerate(pairwise(ends)):
        start = max(0, first + draw(st.sampled_from([0, 0, 0, 0, 1, -1])))
        end = max(start, last + draw(st.sampled_from([0, 0, 0, 0, 1, -3])))
        checksum = crc32c(data[start:end]) ^ draw(st.sampled_from([0, 0, 0, 0, 1]))
        decoding = draw(st.sampled_from([None, None, None, "none"]))
        rows.append((f"file {n}", start, end, checksum, decoding))
    kept = [row for row in rows if draw(st.integers(0, 9))]
    return data, sorted(kept, key=lambda row: row[1:3])


@given(chunks(), st.integers(1, 50))
@example((b"abc", [("a", 0, 1, crc32c(b"a"), None), ("b", 1, 3, crc32c(b"bc"), None)]), 10)
@example((b"abc", [("a", 0, 1, crc32c(b"a"), None), ("b", 2, 3, crc32c(b"c"), None)]), 2)
@example((b"abcd", [("a", 0, 1, crc32c(b"a"), None), ("b", 1, 2, 1, None), ("c", 2, 4, 1, None)]), 10)
@example((b"abcd", [("a", 0, 1, crc32c(b"a"), None), ("b", 1, 1, 1, None), ("c", 1, 4, 1, None)]), 10)
@example((b"abcd", [("a", 0, 1, crc32c(b"a"), None), ("b", 1, 4, crc32c(b"bcd"), "none")]), 10)
@example((b"", [("a", 0, 0, 0, None)]), 1)
@example((b"", [("a", 0, 0, 7, None)]), 1)
@example((b"abc", [("a", 0, 9, 0, None)]), 1)
@example((b"abc", [("a", 0, 3, crc32c(b"abc"), "none")]), 10)
@example((b"abc", [("a", 0, 2, crc32c(b"ab"), None), ("b", 1, 3, crc32c(b"bc"), None)]), 10)
def test_any_rows_over_any_data(chunk: tuple[bytes, list[Row]], block_bytes: int) -> None:
    both_ways(lambda: outcome(*chunk, block_bytes))


def test_rows_that_are_cut_by_blocks_of_rows() -> None:
    """3 MB of rows, which are read in blocks of 1 MiB."""
    data = bytes(n % 251 for n in range(40_000))
    rows: list[Row] = [(f"folder/{n:05}", n, n + 1, crc32c(data[n : n + 1]), None) for n in range(40_000)]
    found, state, failed = both_ways(lambda: outcome(data, rows, 1000))
    assert (found, state[0], state[1], failed) == ([], 40_000, 40_000, "None")
    rows[39_000] = (*rows[39_000][:3], 1, None)
    found, *_ = both_ways(lambda: outcome(data, rows, 1000))
    assert [finding.path for finding in found] == ["folder/39000"]
