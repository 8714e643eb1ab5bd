"""Copies journal records into a store that gets copies of chunks, from the store that has the chunks.

Without the records of earlier removals, a rebuild from this store alone would bring removed files back. Records of
later changes are written to this store as to every other one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from cafcat.catalog.history.journal import Journal, JournalRecord
from cafcat.errors import AccessDenied, CafcatError, CatalogOutdated, CatalogUnavailable, ServerFailed
from cafcat.progress import Progress
from cafcat.stores.base import Store
from cafcat.stores.keys import JOURNAL_PREFIX
from cafcat.stores.putting import put_once
from cafcat.writing.journal import journal_key, write_journal
from cafcat.writing.journal_reader import JournalObject

__all__ = ["JournalCopies", "RecordUnreadable"]


class RecordUnreadable(Exception):
    """A journal record cannot be read from its source. The target did not fail.

    Attributes:
        error: The error of the source.
    """

    def __init__(self, error: CafcatError) -> None:
        super().__init__(error)
        self.error = error


class JournalCopies:
    """Copies earlier journal records into one target store.

    The catalog must have a copy of a chunk in the target, complete or being written. Then records of later changes
    are written into the target without this class.
    """

    def __init__(self, journal: Journal, target: Store, progress: Progress) -> None:
        """Prepare to copy journal records. This reads nothing yet.

        Args:
            journal: The journal of the catalog.
            target: The store that gets the records.
            progress: Receives a warning about each record that is missing or damaged in the source.
        """
        self._journal = journal
        self._target = target
        self._progress = progress
        self._keys: set[str] | None = None
        self._brought_after: int | None = None

    def restart(self) -> None:
        """Forget which records were copied. Call this when writing a copy of a chunk failed.

        After the failure, the catalog may have no copy in the target for a while. Records of changes in this time
        are not written there.
        """
        self._brought_after = None

    def bring(self, source: Store, after: int) -> None:
        """Copy the records that the target lacks, of removals and restorations after the commit of a chunk.

        The chunk needs no records from before its commit. Later records are copied from its own store, the source.
        Records that are not in all their stores yet are written from the catalog. Records that an earlier call has
        copied are not checked again.

        Args:
            source: The store of the chunk. A record that is missing or damaged there causes only a warning.
            after: Sequence number (journal.id) of the chunk's commit.

        Raises:
            RecordUnreadable: The source does not answer, or denies access. It may have the record.
            StoreFailed, AccessDenied: The target failed.
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        until = self._brought_after
        if until is not None and after >= until:
            return
        sent = False
        for record in self._journal.removals(after, until):
            sent = self._copy_or_send(source, record) or sent
        if sent:
            write_journal(self._journal, self._target)
        self._brought_after = after

    def _copy_or_send(self, source: Store, record: JournalRecord) -> bool:
        """Copy a record from the source, unless the target has it.

        Returns:
            True if the target does not have the record, and `write_journal` has to write it.
        """
        key = journal_key(record.sequence, record.uuid)
        if key in self._keys_in_target():
            return False
        sent = self._target.url in record.unwritten or self._journal.add_pending_store(
            record.sequence, self._target.url
        )
        if not sent:
            self._copy_record(source, key)
        self._keys_in_target().add(key)
        return sent

    def _copy_record(self, source: Store, key: str) -> None:
        try:
            with _of_source():
                size_bytes = source.stat(key).size_bytes
                JournalObject(source, key, size_bytes)  # reads all of it
            with self._journal.exclusively(self._target.url):
                put_once(self._target, key, partial(_blocks, source, key, size_bytes))
        except RecordUnreadable as unreadable:
            if isinstance(unreadable.error, ServerFailed | AccessDenied):
                raise
            # The copy is still as good as its source: the source lacks this record, too.
            self._progress.warn(
                f"the journal record {key} cannot be copied: {unreadable.error}; a rebuild will lack its changes"
            )

    def _keys_in_target(self) -> set[str]:
        if self._keys is None:
            self._keys = {found.key for found in self._target.list() if found.key.startswith(JOURNAL_PREFIX)}
        return self._keys


def _blocks(source: Store, key: str, size_bytes: int) -> Iterator[bytes]:
    with _of_source():
        yield from source.stream(key, 0, size_bytes)


@contextmanager
def _of_source() -> Iterator[None]:
    """Raise errors of the source as RecordUnreadable, so that they are not taken for errors of the target."""
    try:
        yield
    except (CatalogUnavailable, CatalogOutdated):
        raise
    except CafcatError as error:
        raise RecordUnreadable(error) from error
