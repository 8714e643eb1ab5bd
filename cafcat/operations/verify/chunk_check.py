"""Checks the object of one chunk or copy against the rows of the catalog.

The check covers that the object exists, its size, its index, and at level data all its bytes.
"""

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import cached_property
from typing import Final

from cafcat.catalog.chunks.rows import ChunkRow, ChunkRows
from cafcat.catalog.chunks.verification import CheckResult, CheckTarget
from cafcat.errors import (
    CafcatError,
    CatalogOutdated,
    CatalogUnavailable,
    Corrupt,
    IndexMissing,
    NotFound,
    NotInstalled,
    Unsupported,
    is_denied,
)
from cafcat.formats import registry as formats
from cafcat.formats.base import UNCHECKED_HASH, Format, HasRemarks, Reader
from cafcat.formats.caf.format import CAF
from cafcat.formats.format_choice import allow_zero_padding
from cafcat.model import ChunkState, FindingKind, Verdict, VerifyLevel
from cafcat.operations.index_rules import own_prefix
from cafcat.operations.index_section import IndexSection, head_of
from cafcat.operations.verify.data_check import DataCheck
from cafcat.operations.verify.findings import Findings
from cafcat.operations.verify.index_check import compare, compare_index, index_error
from cafcat.progress import Progress, StopOnly
from cafcat.session import Session
from cafcat.sources.names import printable
from cafcat.stores.base import Store, StoredObject
from cafcat.support.checksums import crc64nvme, to_base64
from cafcat.support.quantities import plural

__all__ = ["ObjectCheck", "check_target"]

_NAMED_FILES: Final = 10
"""Largest number of files that the finding of a truncated object names. All its cut-off files are counted."""


def check_target(
    session: Session, target: CheckTarget, level: VerifyLevel, rows: ChunkRows | None = None
) -> CheckResult | None:
    """Check the object of a chunk or copy. Memory does not depend on the object's size.

    Errors of the store are part of the result.

    Args:
        session: The session.
        target: The object to check.
        level: INDEX or DATA.
        rows: The rows of the chunk, which the caller closes; None to query them here.

    Returns:
        The result; None if the check found damage, but prune deleted the object meanwhile.

    Raises:
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    catalog = session.catalog
    started_at = datetime.now(UTC)
    findings = Findings(is_live=target.state is ChunkState.COMMITTED)
    progress = _CountedProgress(session)
    is_conclusive, unchecked = True, 0
    try:
        store = session.stores[target.store]
        with nullcontext(rows) if rows else catalog.verification.rows(target.chunk_id) as all_rows:
            check = ObjectCheck(store, target, all_rows, findings, progress)
            verdict = check.run(level)
            unchecked = check.unchecked_blocks
            is_conclusive = verdict is not Verdict.UNREADABLE or not is_denied(check.failed)
    except (CatalogUnavailable, CatalogOutdated):
        raise
    except NotFound as error:
        verdict = Verdict.MISSING
        findings.add(FindingKind.MISSING, str(error), file_count=target.file_count)
    except CafcatError as error:
        # Damage that was found before the error is recorded as damage.
        is_damaged = bool(findings) or isinstance(error, Corrupt)
        verdict = Verdict.DAMAGED if is_damaged else Verdict.UNREADABLE
        is_conclusive = is_damaged or not (isinstance(error, NotInstalled) or is_denied(error))
        findings.add(FindingKind.UNREADABLE, f"the object cannot be read: {error}")
    if verdict is not Verdict.OK and not catalog.verification.should_exist(target):
        return None
    counts = progress.files, progress.size_bytes
    return CheckResult(verdict, findings.listed(), *counts, started_at, is_conclusive, unchecked)


class ObjectCheck:
    """Compares one object of a store with the rows of its chunk, and adds the damage to the findings.

    Attributes:
        unchecked_blocks: Number of blocks of an adopted CAR with a hash function that cafcat does not check.
        failed: Why the data could not be read to its end, which is one of the findings; None if all was read.
    """

    def __init__(
        self, store: Store, target: CheckTarget, rows: Iterable[ChunkRow], findings: Findings, progress: Progress
    ) -> None:
        """Prepare to check an object. This reads nothing yet.

        Args:
            store: The store of the object.
            target: The object.
            rows: All rows of the chunk, in the order of their bytes. They are iterated more than once.
            findings: Each damage that is found is added to them.
            progress: Advances by the files and bytes that were checked. May raise to stop the check.
        """
        self._store = store
        self._target = target
        self._rows = rows
        self._findings = findings
        self._progress = progress
        self.unchecked_blocks = 0
        self.failed: CafcatError | None = None

    @cached_property
    def _format(self) -> Format:
        """Format of the object. Raises Unsupported if cafcat does not have this format."""
        return formats.by_name(self._target.format)

    def run(self, level: VerifyLevel) -> Verdict:
        """Check the object at level INDEX or DATA.

        Returns:
            OK without findings; UNREADABLE if the store failed while the data was read, and no damage was found
            before; otherwise DAMAGED.

        Raises:
            NotFound: The object is missing.
            Corrupt: The object became shorter while its index was read.
            StoreFailed, AccessDenied: The store does not return the size or the index of the object.
            Unsupported, NotInstalled, IndexMissing: The archive cannot be read here.
        """
        target = self._target
        size_bytes = self._store.stat(target.object_key).size_bytes
        if size_bytes < target.size_bytes:
            self._add_cut_finding(size_bytes)
        elif size_bytes > target.size_bytes:
            message = f"the object has {size_bytes:,} bytes instead of {target.size_bytes:,}"
            self._findings.add(FindingKind.SIZE, message)
        if target.adopted_prefix is not None:
            return self._run_listed(target.adopted_prefix, size_bytes, level)
        if target.index_start_byte == target.index_end_byte:
            prefix = own_prefix(self._format, target.object_key)
            return self._run_listed(prefix, size_bytes, level)
        with self._read_index(size_bytes) as section:
            reader = self._check_index(section)
            # Data before the rows of the index: it is read while the rows arrive, which the index has to wait for.
            data = self._check_files(size_bytes) if level is VerifyLevel.DATA else None
            if reader is not None:
                self._compare_index(reader, counts_files=data is None)
            if data is not None and data.failed is None and target.crc64nvme is not None:
                self._check_whole(data, section)
        return self._verdict()

    def _run_listed(self, prefix: str, size_bytes: int, level: VerifyLevel) -> Verdict:
        """Check an object without an index at its end, or an adopted archive. Returns the verdict as `run` does.

        The archive must list every file that the catalog has in it. An adopted archive may list further files, any
        other object may not. At level DATA, the files must also have the checksums in the catalog, and so must the
        whole object if the catalog has its checksum.

        Args:
            prefix: Text before each of the archive's own names in the paths of the catalog.
            size_bytes: Actual size of the object.
            level: INDEX or DATA.
        """
        data = self._check_files(size_bytes) if level is VerifyLevel.DATA else None
        if self.failed is None and size_bytes >= self._target.size_bytes:
            self._check_names(prefix, counts_files=level is VerifyLevel.INDEX)
        if data is not None and self.failed is None and not self._findings and self._target.crc64nvme is not None:
            self._check_checksum(data)
        return self._verdict()

    def _verdict(self) -> Verdict:
        """Return the verdict as `run` does."""
        is_only_failed = self.failed is not None and len(self._findings.listed()) == 1
        if is_only_failed and not isinstance(self.failed, Corrupt):
            return Verdict.UNREADABLE
        return Verdict.DAMAGED if self._findings else Verdict.OK

    def _add_cut_finding(self, size_bytes: int) -> None:
        """Add one finding for an object that is shorter than when it was written.

        The finding names the first 10 files that are cut off, and has the number of all.

        Args:
            size_bytes: Actual size of the object.
        """
        cut = [0, 0]
        names: list[str] = []
        first: str | None = None
        for row in self._rows:
            if row.end_byte > size_bytes and row.start_byte < row.end_byte:
                cut[row.is_live] += 1
                first = row.path if first is None else first
                if len(names) < _NAMED_FILES:
                    names.append(printable(row.path))
        count = sum(cut)
        message = f"the object has {size_bytes:,} bytes of {self._target.size_bytes:,}"
        if self._target.index_start_byte < self._target.index_end_byte:
            message += "; its index is cut off"
        if count:
            named = ", ".join(names) + (f" and {count - len(names):,} more" if count > len(names) else "")
            message += f"; {plural(count, 'file')} cut off, {cut[True]:,} of them live: {named}"
        span = (size_bytes, self._target.size_bytes)
        self._findings.add(FindingKind.SIZE, message, first, *span, file_count=count)

    def _check_checksum(self, data: DataCheck) -> None:
        """Compare the checksum of all bytes that were read with that of the whole object in the catalog.

        All files have been found undamaged before, so a difference is in bytes between them.
        """
        found = to_base64(data.crc64nvme)
        if found != self._target.crc64nvme:
            message = f"the whole object has CRC-64/NVME {found} instead of {self._target.crc64nvme}"
            self._add_gap_finding(message, data, is_index_known=True)

    def _check_names(self, prefix: str, *, counts_files: bool) -> None:
        """Compare the entries that the archive lists with the rows of the catalog. Damage becomes findings."""
        target = self._target
        archive = StoredObject(self._store, target.object_key)
        try:
            archive_format = self._format
            if target.adopted_prefix is not None:
                # The user may have allowed padding at adoption. If padding hides files now, their rows are
                # findings.
                archive_format = allow_zero_padding(archive_format)
            reader = archive_format.reader(archive)
            entries = (entry._replace(path=prefix + entry.path) for entry in reader.entries())
            # Adoption left out entries that could not be read, or whose names the catalog cannot store.
            is_adopted = target.adopted_prefix is not None
            progress = self._progress if counts_files else StopOnly(self._progress)
            compare(entries, self._rows, self._findings, progress, lacks_checksums=True, may_lack_rows=is_adopted)
            if isinstance(reader, HasRemarks):
                remarks = reader.remarks()
                self.unchecked_blocks = sum(remark.blocks for remark in remarks if remark.kind == UNCHECKED_HASH)
        except (IndexMissing, NotInstalled):
            # The list of files is in another object, or a program to read it is missing. At level data the files
            # were checked by their rows, which is enough.
            if counts_files:
                raise
        except (Corrupt, Unsupported) as error:
            self._findings.add(FindingKind.INDEX, f"the archive is damaged: {error.message}")

    def _read_index(self, size_bytes: int) -> IndexSection:
        """Return the bytes from the expected start of the index to the expected end of the object.

        If the object is shorter than the catalog says, these are fewer bytes, or none.

        Args:
            size_bytes: Actual size of the object.
        """
        target = self._target
        end = min(size_bytes, target.size_bytes)
        start = min(target.index_start_byte, end)
        blocks = self._counted(self._store.stream(target.object_key, start, end) if start < end else iter(()))
        head = head_of(self._store, target.object_key, end, self._format)
        return IndexSection(self._store.locate(target.object_key), target.index_start_byte, blocks, head)

    def _counted(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the blocks unchanged, and report their bytes as progress."""
        for block in blocks:
            self._progress.advance(0, len(block))
            yield block

    def _is_index_known(self, section: IndexSection) -> bool:
        """Return True if the index has the checksum in the catalog: then rows that differ from it are wrong."""
        is_whole = section.size_bytes >= self._target.size_bytes
        return is_whole and section.crc32c == self._target.index_crc32c

    def _check_index(self, section: IndexSection) -> Reader | None:
        """Check the object's index by itself, and return a reader of it; None if the index is damaged.

        Damage becomes a finding.
        """
        target = self._target
        if section.size_bytes < target.size_bytes:
            return None  # the finding of the short object names its index
        if target.index_crc32c is not None and section.crc32c != target.index_crc32c:
            reason = index_error(section, self._format, target.index_end_byte)
            message = f"CRC-32C {section.crc32c:08x} instead of {target.index_crc32c:08x}"
            self._add_index_finding(message + (f"; {reason}" if reason else ""))
            return None
        try:
            reader = self._format.reader(section)
            span = reader.index_span
            if span != (target.index_start_byte, target.index_end_byte):
                expected = f"[{target.index_start_byte}, {target.index_end_byte})"
                self._add_index_finding(f"its footer names bytes [{span[0]}, {span[1]}) instead of {expected}")
        except (Corrupt, Unsupported) as error:
            self._add_unreadable_index(error)
            return None
        return reader

    def _compare_index(self, reader: Reader, *, counts_files: bool) -> None:
        """Compare the object's index with the rows of the catalog. Differences become findings."""
        progress = self._progress if counts_files else StopOnly(self._progress)
        try:
            compare_index(reader, self._rows, self._findings, progress)
        except (Corrupt, Unsupported) as error:
            self._add_unreadable_index(error)

    def _add_unreadable_index(self, error: Corrupt | Unsupported) -> None:
        self._add_index_finding(error.message + ("" if error.byte is None else f" (byte {error.byte:,})"))

    def _add_index_finding(self, message: str) -> None:
        span = (self._target.index_start_byte, self._target.size_bytes)
        self._findings.add(FindingKind.INDEX, f"the index of the object is damaged: {message}", None, *span)

    def _check_files(self, size_bytes: int) -> DataCheck:
        check = DataCheck(self._store, self._target, size_bytes, self._findings, self._progress)
        check.run(self._rows)
        self.failed = check.failed
        return check

    def _check_whole(self, data: DataCheck, section: IndexSection) -> None:
        """Compare the checksum of data and index with that of the whole object in the catalog.

        Files and index have their own checksums. If these are right and that of the whole object is not, then bytes
        between them are damaged. If that of the whole object is right, the rows are wrong: FILE findings become
        MAPPING findings.
        """
        checksum = data.crc64nvme
        for block in section.blocks():
            checksum = crc64nvme(block, checksum)
        found = to_base64(checksum)
        findings = self._findings
        if found == self._target.crc64nvme:
            # The object is exactly as it was written, so the rows have changed.
            findings.change(FindingKind.FILE, FindingKind.MAPPING, after="; the object is undamaged")
            return
        is_index_known = self._is_index_known(section)
        # The object is damaged. If the catalog has no checksum of the index, rows that differ from it are right.
        kinds = [FindingKind.FILE, FindingKind.INDEX, FindingKind.SIZE]
        if not is_index_known and not findings.count(FindingKind.FILE):
            findings.change(FindingKind.MAPPING, FindingKind.INDEX, before="the index of the object is damaged: ")
        if not any(map(findings.count, kinds)):
            message = f"the whole object has CRC-64/NVME {found} instead of {self._target.crc64nvme}"
            self._add_gap_finding(message, data, is_index_known=is_index_known)

    def _add_gap_finding(self, message: str, data: DataCheck, *, is_index_known: bool) -> None:
        """Add a finding for a wrong checksum of the whole object, although no file is damaged."""
        if data.gaps:
            spans = ", ".join(f"[{start}, {end})" for start, end in data.gaps)
            more = data.gap_count - len(data.gaps)
            where = f"bytes that belong to no file are damaged, in {spans}" + (f" and {more} more" if more else "")
            where += "" if is_index_known else ", or its index is damaged"
            span = (data.gaps[0][0], self._target.index_start_byte if more else data.gaps[-1][1])
            # In a CAF these bytes are from files that the writer abandoned; other formats have headers there.
            is_live = self._target.format != CAF.name
            self._findings.add(FindingKind.GAP, f"{where}: {message}", None, *span, is_live=is_live)
        elif is_index_known and data.has_decoded:
            where = "bytes that no file is decoded from are damaged"
            self._findings.add(FindingKind.GAP, f"{where}: {message}", None, 0, self._target.index_start_byte)
        elif is_index_known:
            self._findings.add(FindingKind.CATALOG, f"{message}; but its files and its index are undamaged")
        else:
            self._add_index_finding(message)


class _CountedProgress(Progress):
    """Counts files and bytes of one check, and passes them on to the session. Each call is a checkpoint."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.files = self.size_bytes = 0

    def checkpoint(self) -> None:
        """Raise what `Session.checkpoint` raises if the user wants verify to end at once."""
        self._session.checkpoint()

    def advance(self, files: int, size_bytes: int) -> None:
        """Count files and bytes, and report them to the session. Raises what `Session.checkpoint` raises."""
        self.files += files
        self.size_bytes += size_bytes
        self._session.checkpoint()
        if files or size_bytes:
            self._session.progress.advance(files, size_bytes)
