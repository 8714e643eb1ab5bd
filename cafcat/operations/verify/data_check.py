"""Every byte of a chunk, in one sequential read: each file by its checksum, the whole by its own."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from cafcat.catalog.chunks.rows import ChunkRow
from cafcat.errors import CafcatError, Corrupt, Unsupported
from cafcat.model import FindingKind
from cafcat.operations.chunk_contents import Unreadable, guarded
from cafcat.operations.verify.findings import Findings
from cafcat.support.checksums import crc32c, crc64nvme

__all__ = ["DataCheck"]

_LISTED_GAPS: Final = 20


class DataCheck:
    """Reads data of an object, and says which files in it are damaged. Rows of the catalog say where files are, so
    it does not depend on the object's own index.

    crc64nvme: of all that was read, which is `position` bytes. gaps: spans of no file, the first of them;
    gap_count: how many there are. has_decoded: whether there are files that had to be decoded, so that not every
    byte of a span says something. failed: why the store stopped giving bytes, if it did.
    """

    def __init__(
        self,
        blocks: Iterator[bytes],
        *,
        data_bytes: int,
        found_bytes: int,
        findings: Findings,
        advance: Callable[[int, int], object],
        read_again: Callable[[int, int], Iterator[bytes]],
        may_share: bool,
        decode: Callable[[Iterator[bytes], ChunkRow], Iterator[bytes]],
    ) -> None:
        """Args: blocks: of `[0, min(data_bytes, found_bytes))`; data_bytes: how many there should be; found_bytes:
        size of the object; advance: is told of files and bytes with each block; read_again: blocks of a span, for
        files that share bytes with others; may_share: whether they may; decode: what makes a file of its span,
        where the row says so."""
        self._blocks = blocks
        self._data_bytes = data_bytes
        self._end = min(data_bytes, found_bytes)
        self._findings = findings
        self._advance = advance
        self._read_again = read_again
        self._may_share = may_share
        self._decode = decode
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
        """All rows, in order of their bytes; then what is left. Raises what `advance` raises."""
        row: ChunkRow | None = None
        try:
            for row in rows:
                self.files += 1
                _, start, end, expected, _, _, _, decoding = row
                at = start - self._block_start
                if start == self.position and end - start <= len(self._block) - at and decoding is None:
                    # Next, and wholly in this block, as most small files are: here, a call would cost a quarter.
                    self.position = end
                    if crc32c(self._block[at : at + end - start]) == expected:
                        continue
                    self.position = start
                self._check(row)
            row = None
            self._skip_to(self._end)
            self._advance(self.files - self._advanced_files, 0)
        except CafcatError as error:
            self.failed = error
            self._tell_failure(row, error)

    def _check(self, row: ChunkRow) -> None:
        start, end = row.start_byte, row.end_byte
        if start == end:
            self._check_span(row, iter(()))
        elif self._end < end <= self._data_bytes:
            return  # ObjectCheck has one finding for all files that a short object lacks
        elif end > self._end and start >= self.position:
            self._tell(row, "it goes on beyond the end of the data")
        elif start >= self.position:
            self._skip_to(start)
            self._check_span(row, self._parts_to(end))
            self._pass_to(end)
        else:
            if not self._may_share:
                message = "it shares bytes with another file of its chunk"
                self._findings.add(FindingKind.MAPPING, message, row.path, start, end)
            self._check_span(row, self._read_again(start, end) if end <= self._end else iter(()))

    def _check_span(self, row: ChunkRow, span: Iterator[bytes]) -> None:
        found = 0
        self.has_decoded = self.has_decoded or row.decoding is not None
        try:
            for block in span if row.decoding is None else self._decode(guarded(span), row):
                found = crc32c(block, found)
        except Unreadable as error:
            raise error.reason from error
        except (Corrupt, Unsupported) as error:
            if row.decoding is None:
                raise
            self._tell(row, error.message)
            return
        if found != row.crc32c:
            self._tell(row, f"its bytes have CRC-32C {found:08x}, the catalog says {row.crc32c:08x}")

    def _tell(self, row: ChunkRow, what: str) -> None:
        dead = "" if row.is_live else "; nothing points to it any more"
        span = (row.start_byte, row.end_byte)
        self._findings.add(FindingKind.FILE, what + dead, row.path, *span, is_live=row.is_live)

    def _skip_to(self, start: int) -> None:
        """Past bytes of no file."""
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
        """The bytes from here to there."""
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
        self._block = b""  # so that a failure leaves no doubt how far it came
        self._block = next(self._blocks, b"")
        if not self._block:
            raise Corrupt(f"the object ends at byte {self.position:,}, where it has {self._end:,} by its size")
        self._advance(self.files - self._advanced_files, len(self._block))
        self._advanced_files = self.files
        self.crc64nvme = crc64nvme(self._block, self.crc64nvme)

    def _tell_failure(self, row: ChunkRow | None, error: CafcatError) -> None:
        """The bytes at hand cannot be read; what comes after them was not looked at."""
        reason = f"cannot be read: {error}; what comes after was not checked"
        if row is None or self.position < row.start_byte:
            self._findings.add(FindingKind.GAP, reason, None, self.position, row.start_byte if row else self._end)
        else:
            self._findings.add(FindingKind.FILE, reason, row.path, row.start_byte, row.end_byte)
