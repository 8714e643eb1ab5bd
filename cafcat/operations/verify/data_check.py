"""Reads the data of an object in order, checks each file, and computes the checksum of the data."""

from collections.abc import Iterable, Iterator
from typing import Final

from cafcat.catalog.chunks.rows import ChunkRow, ChunkRows, RowReader
from cafcat.catalog.chunks.verification import CheckTarget
from cafcat.errors import CafcatError, Corrupt, NotFound, NotInstalled, Unsupported
from cafcat.formats import registry as formats
from cafcat.model import FindingKind
from cafcat.native.rows import RowChecker, row_checker
from cafcat.operations.chunk_contents import Unreadable, entry_of, guarded
from cafcat.operations.verify.findings import Findings
from cafcat.progress import Progress
from cafcat.reading.fetch import object_blocks
from cafcat.stores.base import Store
from cafcat.support.checksums import crc32c, crc64nvme

__all__ = ["DataCheck"]

_LISTED_GAPS: Final = 20
"""Largest number of gaps (spans that belong to no file) whose positions are remembered. All gaps are counted."""


class DataCheck:
    """Reads the data of an object, and adds a finding for each damaged file.

    The rows of the catalog have the spans of the files, so the check does not need the object's own index.

    Attributes:
        position: Offset in the object up to which its bytes were checked.
        files: Number of files that were checked.
        crc64nvme: CRC-64/NVME of all blocks that were read, from the start of the object.
        gaps: The first 20 gaps: spans that belong to no file.
        gap_count: Number of all gaps.
        has_decoded: True if files had to be decoded: then a damaged byte in a span need not damage a file.
        failed: The error because of which the rest of the object could not be read; None without one.
    """

    def __init__(
        self, store: Store, target: CheckTarget, found_bytes: int, findings: Findings, progress: Progress
    ) -> None:
        """Prepare to read the data of an object.

        Args:
            store: The store of the object.
            target: The object.
            found_bytes: Actual size of the object.
            findings: Each damage that is found is added to them.
            progress: Advances by the files and bytes of each block. May raise to stop the check.
        """
        self._store = store
        self._key = target.object_key
        self._format = formats.by_name(target.format)
        self._data_bytes = target.index_start_byte
        self._end = min(self._data_bytes, found_bytes)
        self._blocks = object_blocks(store, self._key, self._end) if self._end else iter(())
        self._findings = findings
        self._progress = progress
        self._may_share = target.adopted_prefix is not None
        self._block = b""
        self._block_start = 0
        self._advanced_files = 0
        self.position = 0
        self.files = 0
        self.crc64nvme = 0
        self.gaps: list[tuple[int, int]] = []
        self.gap_count = 0
        self.has_decoded = False
        self.failed: CafcatError | None = None

    def run(self, rows: Iterable[ChunkRow]) -> None:
        """Check the checksum of each file, and read the bytes that belong to no file.

        If the store fails, the object ends too early, or `progress` raises a CafcatError, this adds a finding, and
        sets `failed`. Other exceptions of `progress` are raised.

        Args:
            rows: All rows of the chunk, in the order of their bytes.

        Raises:
            NotFound: The object was deleted meanwhile.
            NotInstalled: A library that decodes the files is missing.
        """
        row: ChunkRow | None = None
        checker = row_checker()
        if checker is not None and isinstance(rows, ChunkRows):
            rows = self._others(rows.reader(), checker)
        try:
            for row in rows:
                self.files += 1
                _, start, end, expected, _, _, _, decoding = row
                at = start - self._block_start
                if start == self.position and end - start <= len(self._block) - at and decoding is None:
                    # The file begins here and ends in this block, as most small files do. A call would cost 25 %.
                    self.position = end
                    if crc32c(self._block[at : at + end - start]) == expected:
                        continue
                    self.position = start
                self._check(row)
            row = None
            self._skip_to(self._end)
            self._progress.advance(self.files - self._advanced_files, 0)
        except (NotFound, NotInstalled):
            raise
        except CafcatError as error:
            self.failed = error
            self._add_failure(row, error)

    def _others(self, reader: RowReader, checker: RowChecker) -> Iterator[ChunkRow]:
        """Yield the rows except those that the native part passes over, because their files are right."""
        while True:
            passed = checker.check(reader.text, reader.at, self._block, self._block_start, self.position)
            self.files += passed.files
            reader.at, self.position = passed.at, passed.position
            row = reader.row()
            if row is None:
                return
            yield row

    def _check(self, row: ChunkRow) -> None:
        start, end = row.start_byte, row.end_byte
        if start == end:
            self._check_span(row, iter(()))
        elif self._end < end <= self._data_bytes:
            return  # ObjectCheck adds one finding for all files that are cut off
        elif end > self._end and start >= self.position:
            self._add_finding(row, "the span of this file ends after the end of the data")
        elif start >= self.position:
            self._skip_to(start)
            self._check_span(row, self._parts_to(end))
            self._pass_to(end)
        else:
            if not self._may_share:
                message = "this file shares bytes with another file of its chunk"
                self._findings.add(FindingKind.MAPPING, message, row.path, start, end)
            self._check_span(row, self._store.stream(self._key, start, end) if end <= self._end else iter(()))

    def _check_span(self, row: ChunkRow, span: Iterator[bytes]) -> None:
        found = 0
        self.has_decoded = self.has_decoded or row.decoding is not None
        try:
            decoded = span if row.decoding is None else self._format.decode(guarded(span), entry_of(row))
            for block in decoded:
                found = crc32c(block, found)
        except Unreadable as error:
            raise error.reason from error
        except (Corrupt, Unsupported) as error:
            if row.decoding is None:
                raise
            self._add_finding(row, error.message)
            return
        if found != row.crc32c:
            self._add_finding(row, f"the bytes of this file have CRC-32C {found:08x} instead of {row.crc32c:08x}")

    def _add_finding(self, row: ChunkRow, what: str) -> None:
        dead = "" if row.is_live else "; no live file needs them"
        span = (row.start_byte, row.end_byte)
        self._findings.add(FindingKind.FILE, what + dead, row.path, *span, is_live=row.is_live)

    def _skip_to(self, start: int) -> None:
        """Read the bytes up to `start`, which belong to no file, and remember their span as a gap."""
        if start <= self.position:
            return
        self.gap_count += 1
        if len(self.gaps) < _LISTED_GAPS:
            self.gaps.append((self.position, start))
        self._pass_to(start)

    def _pass_to(self, end: int) -> None:
        for _ in self._parts_to(end):
            pass

    def _parts_to(self, end: int) -> Iterator[bytes]:
        """Yield the bytes from `position` to `end`, and move `position` along."""
        while self.position < end:
            at = self.position - self._block_start
            if at == len(self._block):
                self._next_block()
                at = 0
            part = self._block[at : end - self._block_start]
            self.position += len(part)
            yield part

    def _next_block(self) -> None:
        self._block_start += len(self._block)
        self._block = b""  # after a failure, `position` is exact
        self._block = next(self._blocks, b"")
        if not self._block:
            raise Corrupt(f"the object ends at byte {self.position:,} instead of byte {self._end:,}")
        self._progress.advance(self.files - self._advanced_files, len(self._block))
        self._advanced_files = self.files
        self.crc64nvme = crc64nvme(self._block, self.crc64nvme)

    def _add_failure(self, row: ChunkRow | None, error: CafcatError) -> None:
        """Add a finding for the bytes that could not be read. The bytes after them were not checked.

        Args:
            row: The file that was being checked; None after the last file.
            error: Why the bytes could not be read.
        """
        reason = f"these bytes cannot be read: {error}; the bytes after them were not checked"
        if row is None or self.position < row.start_byte:
            self._findings.add(FindingKind.GAP, reason, None, self.position, row.start_byte if row else self._end)
        else:
            self._findings.add(FindingKind.FILE, reason, row.path, row.start_byte, row.end_byte)
