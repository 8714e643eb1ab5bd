"""One object, a chunk or a copy of one, against the catalog."""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

from cafcat.catalog.chunks.rows import ChunkRow
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
)
from cafcat.formats import registry as formats
from cafcat.formats.base import UNCHECKED_HASH, HasRemarks
from cafcat.formats.caf.format import CAF
from cafcat.formats.format_choice import allow_zero_padding
from cafcat.model import ChunkState, FindingKind, Verdict, VerifyLevel
from cafcat.operations.chunk_contents import entry_of
from cafcat.operations.index_rules import own_prefix
from cafcat.operations.index_section import IndexSection, head_of
from cafcat.operations.verify.data_check import DataCheck
from cafcat.operations.verify.findings import Findings
from cafcat.operations.verify.index_check import compare, index_error
from cafcat.reading.fetch import object_blocks
from cafcat.session import Session
from cafcat.sources.names import printable
from cafcat.stores.base import Store, StoredObject
from cafcat.support.checksums import crc64nvme, to_base64

__all__ = ["Advance", "ObjectCheck", "check_target"]

Advance = Callable[[int, int], object]
"""Is told of further files and bytes. May raise, to stop in the middle."""

_NAMED_FILES: Final = 10
"""Files that are named in the finding of a short object; the others are counted."""


def check_target(session: Session, target: CheckTarget, level: VerifyLevel) -> CheckResult | None:
    """Check the object of a chunk or copy at level index or data. Memory does not depend on the object's size.

    Returns:
        The result; None if the object was deleted meanwhile.

    Raises:
        CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
    """
    catalog = session.catalog
    started_at = datetime.now(UTC)
    findings = Findings(is_live=target.state is ChunkState.COMMITTED)
    progress = _CountedProgress(session)
    is_known, unchecked = True, 0
    try:
        store = session.stores[target.store]
        with catalog.verification.rows(target.chunk_id) as rows:
            check = ObjectCheck(store, target, rows, findings, progress)
            verdict = check.run(level)
            unchecked = check.unchecked_blocks
    except (CatalogUnavailable, CatalogOutdated):
        raise
    except NotFound as error:
        verdict = Verdict.MISSING
        findings.add(FindingKind.MISSING, str(error))
    except CafcatError as error:
        verdict = Verdict.UNREADABLE
        is_known = not isinstance(error, NotInstalled)
        findings.add(FindingKind.UNREADABLE, f"it cannot be read: {error}")
    if verdict is not Verdict.OK and not catalog.verification.should_exist(target):
        return None
    counts = progress.files, progress.size_bytes
    return CheckResult(verdict, findings.listed(), *counts, started_at, is_known, unchecked)


class ObjectCheck:
    """An object of a store against the rows of its chunk; damage goes to `findings`.

    unchecked_blocks: blocks of an adopted CAR with a hash function that is not checked.
    """

    def __init__(
        self, store: Store, target: CheckTarget, rows: Iterable[ChunkRow], findings: Findings, advance: Advance
    ) -> None:
        """Args: rows: all of them, in order of their bytes; gone through more than once."""
        self._store = store
        self._target = target
        self._rows = rows
        self._findings = findings
        self._advance = advance
        self.unchecked_blocks = 0

    def run(self, level: VerifyLevel) -> Verdict:
        """At level index or data. Raises NotFound if there is no such object, StoreFailed and so on if the store
        gives none of its bytes."""
        target = self._target
        size_bytes = self._store.stat(target.object_key).size_bytes
        if size_bytes < target.size_bytes:
            self._tell_cut(size_bytes)
        elif size_bytes > target.size_bytes:
            message = f"it has {size_bytes:,} bytes, the catalog says {target.size_bytes:,}"
            self._findings.add(FindingKind.SIZE, message)
        if target.adopted_prefix is not None:
            return self._run_listed(target.adopted_prefix, size_bytes, level)
        if target.index_start_byte == target.index_end_byte:
            prefix = own_prefix(formats.by_name(target.format), target.object_key)
            return self._run_listed(prefix, size_bytes, level)
        failed: CafcatError | None = None
        with self._read_index(size_bytes) as section:
            index_known = self._check_index(section, tells_files=level is VerifyLevel.INDEX)
            if level is VerifyLevel.DATA:
                data = self._check_files(size_bytes)
                failed = data.failed
                if failed is None and target.crc64nvme is not None:
                    self._check_whole(data, section, index_known=index_known)
        if failed is not None and len(self._findings.listed()) == 1:
            return Verdict.UNREADABLE
        return Verdict.DAMAGED if self._findings else Verdict.OK

    def _run_listed(self, prefix: str, size_bytes: int, level: VerifyLevel) -> Verdict:
        """Of an archive of somebody else there is no more to compare with than what it said when it was adopted: at
        level index, that it says it again; at level data, the checksums that its files had. One of our own that has
        no index at its end is checked likewise, and as a whole."""
        failed: CafcatError | None = None
        data = self._check_files(size_bytes) if level is VerifyLevel.DATA else None
        if data is not None:
            failed = data.failed
        if failed is None and size_bytes >= self._target.size_bytes:
            self._check_names(prefix, tells_files=level is VerifyLevel.INDEX)
        if data is not None and failed is None and not self._findings and self._target.crc64nvme is not None:
            self._check_sum(data)
        if failed is not None and len(self._findings.listed()) == 1:
            return Verdict.UNREADABLE
        return Verdict.DAMAGED if self._findings else Verdict.OK

    def _tell_cut(self, size_bytes: int) -> None:
        """Add one finding for an object that is shorter than it was written, with the files that are cut off."""
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
        message = f"it has {size_bytes:,} bytes of {self._target.size_bytes:,}"
        if self._target.index_start_byte < self._target.index_end_byte:
            message += "; its index is cut off"
        if count:
            named = ", ".join(names) + (f" and {count - len(names):,} more" if count > len(names) else "")
            message += f"; {count:,} files are cut off, {cut[True]:,} of them live: {named}"
        span = (size_bytes, self._target.size_bytes)
        self._findings.add(FindingKind.SIZE, message, first, *span, file_count=count)

    def _check_sum(self, data: DataCheck) -> None:
        """Its files are right: then it is the bytes between them."""
        found = to_base64(data.crc64nvme)
        if found != self._target.crc64nvme:
            message = f"the whole object has CRC-64/NVME {found}, the catalog says {self._target.crc64nvme}"
            self._tell_between(message, data, index_known=True)

    def _check_names(self, prefix: str, *, tells_files: bool) -> None:
        target, advance = self._target, self._advance
        archive = StoredObject(self._store, target.object_key)
        try:
            archive_format = formats.by_name(target.format)
            if target.adopted_prefix is not None:
                # Padding may have been allowed when it was adopted. If it hides files, their rows are findings.
                archive_format = allow_zero_padding(archive_format)
            reader = archive_format.reader(archive)
            entries = (entry._replace(path=prefix + entry.path) for entry in reader.entries())
            told = lambda files: advance(files if tells_files else 0, 0)  # noqa: E731
            # What could not be read, or had no name that a catalog can hold, was left out when it was adopted.
            is_adopted = target.adopted_prefix is not None
            compare(entries, self._rows, self._findings, told, lacks_checksums=True, may_lack_rows=is_adopted)
            if isinstance(reader, HasRemarks):
                remarks = reader.remarks()
                self.unchecked_blocks = sum(remark.blocks for remark in remarks if remark.kind == UNCHECKED_HASH)
        except (IndexMissing, NotInstalled):
            # What lists its files is not in it, or nobody here can read it. If they were looked at by their rows,
            # that is enough.
            if tells_files:
                raise
        except (Corrupt, Unsupported) as error:
            self._findings.add(FindingKind.INDEX, f"the archive is damaged: {error.message}")

    def _read_index(self, size_bytes: int) -> IndexSection:
        """What the object has from where its index is to be up to where it is to end."""
        target = self._target
        end = min(size_bytes, target.size_bytes)
        start = min(target.index_start_byte, end)
        blocks = self._told(self._store.stream(target.object_key, start, end) if start < end else iter(()))
        head = head_of(self._store, target.object_key, end, formats.by_name(target.format))
        return IndexSection(self._store.locate(target.object_key), target.index_start_byte, blocks, head)

    def _told(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        for block in blocks:
            self._advance(0, len(block))
            yield block

    def _check_index(self, section: IndexSection, *, tells_files: bool) -> bool:
        """Whether it is known to be the index that was written. Where it is, what differs from it are the rows;
        where nobody has noted its checksum, either may be wrong."""
        target = self._target
        archive_format = formats.by_name(target.format)
        if section.size_bytes < target.size_bytes:
            return False  # the finding of the short object names its index
        if target.index_crc32c is not None and section.crc32c != target.index_crc32c:
            reason = index_error(section, archive_format, target.index_end_byte)
            message = f"CRC-32C {section.crc32c:08x}, the catalog says {target.index_crc32c:08x}"
            self._tell_index(message + (f"; {reason}" if reason else ""))
            return False
        try:
            span = archive_format.reader(section).index_span
            if span != (target.index_start_byte, target.index_end_byte):
                self._tell_index(f"it is [{span[0]}, {span[1]}), the catalog says otherwise")
            advance = self._advance
            entries = archive_format.reader(section).entries()
            compare(entries, self._rows, self._findings, lambda files: advance(files if tells_files else 0, 0))
        except (Corrupt, Unsupported) as error:
            self._tell_index(error.message + ("" if error.byte is None else f" (byte {error.byte:,})"))
        return target.index_crc32c is not None

    def _tell_index(self, message: str) -> None:
        span = (self._target.index_start_byte, self._target.size_bytes)
        self._findings.add(FindingKind.INDEX, f"its index is damaged: {message}", None, *span)

    def _check_files(self, size_bytes: int) -> DataCheck:
        store, key, data_bytes = self._store, self._target.object_key, self._target.index_start_byte
        end = min(data_bytes, size_bytes)
        archive_format = formats.by_name(self._target.format)
        check = DataCheck(
            object_blocks(store, key, end) if end else iter(()),
            data_bytes=data_bytes,
            found_bytes=size_bytes,
            findings=self._findings,
            advance=self._advance,
            read_again=lambda start, end: store.stream(key, start, end),
            may_share=self._target.adopted_prefix is not None,
            decode=lambda span, row: archive_format.decode(span, entry_of(row)),
        )
        check.run(self._rows)
        return check

    def _check_whole(self, data: DataCheck, section: IndexSection, *, index_known: bool) -> None:
        """Files and index have checksums of their own. If those are right, and that of the whole is not, it is what
        lies between them."""
        checksum = data.crc64nvme
        for block in section.blocks():
            checksum = crc64nvme(block, checksum)
        found = to_base64(checksum)
        findings = self._findings
        if found == self._target.crc64nvme:
            # The object is what was written, byte for byte: then the rows are not what they were.
            findings.change(FindingKind.FILE, FindingKind.MAPPING, lambda detail: f"{detail}; the object is whole")
            return
        # Where nobody has noted the checksum of the index, rows that differ from it are not what is wrong.
        kinds = [FindingKind.FILE, FindingKind.INDEX, FindingKind.SIZE]
        if not index_known and not findings.count(FindingKind.FILE):
            findings.change(
                FindingKind.MAPPING, FindingKind.INDEX, lambda detail: f"its index is damaged: {detail}"
            )
        if not any(map(findings.count, kinds)):
            message = f"the whole object has CRC-64/NVME {found}, the catalog says {self._target.crc64nvme}"
            self._tell_between(message, data, index_known=index_known)

    def _tell_between(self, message: str, data: DataCheck, *, index_known: bool) -> None:
        if data.gaps:
            spans = ", ".join(f"[{start}, {end})" for start, end in data.gaps)
            more = data.gap_count - len(data.gaps)
            where = f"bytes of no file are damaged, in {spans}" + (f" and {more} more" if more else "")
            where += "" if index_known else ", or its index is"
            span = (data.gaps[0][0], self._target.index_start_byte if more else data.gaps[-1][1])
            # In a CAF these bytes are of files that were given up; other formats have headers there.
            is_live = self._target.format != CAF.name
            self._findings.add(FindingKind.GAP, f"{where}: {message}", None, *span, is_live=is_live)
        elif index_known and data.has_decoded:
            where = "bytes are damaged that no file is made of"
            self._findings.add(FindingKind.GAP, f"{where}: {message}", None, 0, self._target.index_start_byte)
        elif index_known:
            self._findings.add(FindingKind.CATALOG, f"{message}; its files and its index are right, though")
        else:
            self._tell_index(message)


class _CountedProgress:
    """Counts files and bytes, and passes them on to the session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.files = self.size_bytes = 0

    def __call__(self, files: int, size_bytes: int) -> None:
        self.files += files
        self.size_bytes += size_bytes
        self._session.checkpoint()
        if files or size_bytes:
            self._session.progress.advance(files, size_bytes)
