"""What was removed before a store got its first copy of a chunk: a rebuild from it alone would bring that back.

Journal records that are to come go there like everywhere; earlier ones are brought from a store that has them.
"""

from collections.abc import Callable

from cafcat.catalog.history.journal import Journal, JournalRecord
from cafcat.errors import CafcatError, CatalogOutdated, CatalogUnavailable
from cafcat.stores.base import Store
from cafcat.stores.keys import JOURNAL_PREFIX
from cafcat.writing.journal import journal_key, put_record, write_journal
from cafcat.writing.journal_reader import JournalObject

__all__ = ["JournalCopies"]


class JournalCopies:
    """For one piece of work on one target, of which the catalog has a copy, at least one that is on its way."""

    def __init__(self, journal: Journal, target: Store, warn: Callable[[str], object]) -> None:
        """`warn` is told of records that are damaged, or not there, where they should be."""
        self._journal = journal
        self._target = target
        self._warn = warn
        self._keys: set[str] | None = None
        self._brought_after: int | None = None

    def forget(self) -> None:
        """The target may have had no copy for a moment: what came meanwhile has to be looked for."""
        self._brought_after = None

    def bring(self, source: Store, after: int) -> None:
        """Gives the target every record that says what was removed or brought back after that place in the order,
        and that it lacks. A chunk that was committed there needs no earlier ones, and its own store has all of
        these. Raises what stores raise, CatalogUnavailable."""
        until = self._brought_after
        if until is not None and after >= until:
            return
        sent = False
        for record in self._journal.removals(after, until):
            sent = self._bring(source, record) or sent
        if sent:
            write_journal(self._journal, self._target)
        self._brought_after = after

    def _bring(self, source: Store, record: JournalRecord) -> bool:
        """Whether it is left for write_journal to do."""
        key = journal_key(record.sequence, record.uuid)
        if key in self._known_keys():
            return False
        sent = self._target.url in record.unwritten or self._journal.add_pending_store(
            record.sequence, self._target.url
        )
        if not sent:
            self._copy(source, key)
        self._known_keys().add(key)
        return sent

    def _copy(self, source: Store, key: str) -> None:
        try:
            size_bytes = source.stat(key).size_bytes
            JournalObject(source, key, size_bytes)  # reads all of it
        except (CatalogUnavailable, CatalogOutdated):
            raise
        except CafcatError as error:
            # The copy is no worse for it than what it is made from.
            self._warn(f"the journal record {key} cannot be copied: {error}; a rebuild will not know what it says")
            return
        with self._journal.exclusively(self._target.url):
            put_record(self._target, key, lambda: source.stream(key, 0, size_bytes))

    def _known_keys(self) -> set[str]:
        if self._keys is None:
            self._keys = {found.key for found in self._target.list() if found.key.startswith(JOURNAL_PREFIX)}
        return self._keys
