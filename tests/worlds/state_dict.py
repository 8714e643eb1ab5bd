"""The expected contents of the catalog, as a dict, for the state machine of custody."""

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from hypothesis.stateful import RuleBasedStateMachine

import cafcat
from cafcat.model import OnConflict
from cafcat.settings.database import Database
from tests.worlds import state_world as world
from tests.worlds.state_world import LOGS, Archive, Batch, Raw, Record

__all__ = ["Followed"]

FIRST_TIME = 1_795_255_200

Contents = dict[str, bytes]
Allowed = dict[str, set[bytes | None]]


class Followed(RuleBasedStateMachine):
    """The expected state of the catalog, updated after each operation.

    Attributes:
        live: content of every path.
        places: chunk of every path.
        removed: last removed content of a path, and its chunk.
        pending: chunks of dead writers; True if the object is whole.
        is_left: True if an operation was killed since the last recover.
        archives: third-party archives.
        adopted: chunks that were made by adopting archives, including chunks that were let go since.
    """

    steps: ClassVar[Counter[str]] = Counter()

    def __init__(self, urls: tuple[str, str]) -> None:
        """Open the catalog. urls: of the catalog, and of a second one for rebuilds and restores."""
        super().__init__()
        self.live: Contents = {}
        self.removed: dict[str, tuple[bytes, int]] = {}
        self.pending: dict[int, bool] = {}
        self.places: dict[str, int] = {}
        self.archives: list[Archive] = []
        self.adopted: set[int] = set()
        self.done_at: dict[str, tuple[int, int]] = {}
        self.is_left = False
        self.written = 0
        self._folder = tempfile.TemporaryDirectory(prefix="cafcat-state-")
        home = Path(self._folder.name)
        url, self.other_url = urls
        world.empty(url)
        self.settings = {"database_url": url, "home": home / "home", "store": str(home / "store")}
        self.repository = cafcat.open(**self.settings)
        self.catalog = Database(self.repository.settings).catalog()
        self.raw = Raw(url, home / "store")
        self.copies = home / "copies"

    def teardown(self) -> None:
        self.repository.close()
        self.catalog.close()
        self.raw.close()
        self._folder.cleanup()

    def batch(
        self, sizes: Mapping[str, int], archive_format: str, target_size: int, on_conflict: OnConflict
    ) -> Batch:
        """Write new files into a new folder. All times differ, and all contents except empty ones."""
        folder = Path(self._folder.name) / f"source-{self.written}"
        files = self._contents(sizes)
        for number, (path, content) in enumerate(files.items()):
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            os.utime(file, (FIRST_TIME + self.written - number,) * 2)
        return Batch(folder, files, archive_format, target_size, on_conflict)

    def archive(self, sizes: Mapping[str, int], archive_format: str, prefix: str, again: int | None) -> Archive:
        """Write an archive into a new folder; or, if `again` is a number, return an existing archive."""
        if again is not None and self.archives:
            return self.archives[again % len(self.archives)]
        folder = Path(self._folder.name) / f"archive {len(self.archives)}"
        path = folder / f"{len(self.archives)}.of another program"
        contents = {} if archive_format == LOGS else self._contents(sizes)
        self.archives.append(world.make_archive(path, archive_format, prefix, contents))
        return self.archives[-1]

    def _contents(self, sizes: Mapping[str, int]) -> Contents:
        files = {}
        for path, size in sizes.items():
            self.written += 1
            files[path] = Random(self.written).randbytes(size)
        return files

    def killed(self, verb: str, act: Callable[[cafcat.Repository], object], calls: int, **changes: Any) -> None:
        """Run an operation that is killed at a step, or ends before it, and absorb its effects."""
        end = world.start(self.settings, act, calls).wait()
        assert end in (None, "killed"), end
        self.absorb(**changes)
        self.is_left = self.is_left or end is not None
        self.count(f"{verb}, killed" if end else verb)

    def absorb(
        self,
        removing: Collection[str] = (),
        restoring: Collection[str] = (),
        adopting: tuple[Archive, OnConflict] | None = None,
    ) -> None:
        """Update the expected state from the journal, record by record.

        Two outcomes are allowed for a path in a chunk that recover committed: the file from before, or that of the
        chunk. The catalog decides which. An adopted archive has no journal record; its row in the catalog is read
        instead.
        """
        allowed: Allowed = {path: {content} for path, content in self.live.items()}
        if adopting is not None:
            self.absorb_adoption(*adopting, allowed)
        for record in self.raw.new_records():
            if record.kind == "commit":
                self.absorb_commit(record, allowed)
            elif record.kind == "remove":
                self.absorb_removal(removing, allowed)
            elif record.kind == "restore":
                allowed |= {path: {content} for path, content in self.to_restore(restoring).items()}
        found = self.raw.live()
        for path in allowed.keys() | found.keys():
            assert found.get(path) in allowed.get(path, {None}), f"{path!r} has not its last content"
        self.live, self.places = found, self.raw.places()
        self.check_pending()

    def absorb_commit(self, record: Record, allowed: Allowed) -> None:
        assert record.chunk is not None
        entries = self.raw.entries(record.chunk)
        if record.chunk in self.pending:
            for path, content in entries.items():
                allowed[path] = allowed.get(path, {None}) | {content}
        else:
            _enter(entries, record.keeps, allowed)

    def absorb_adoption(self, archive: Archive, on_conflict: OnConflict, allowed: Allowed) -> None:
        """Allow all files of the archive, or none if it was not adopted."""
        chunks = set(self.raw.adopted(archive.path)) - self.adopted
        assert len(chunks) <= 1
        if chunks:
            self.adopted |= chunks
            _enter(archive.files, on_conflict is OnConflict.SKIP, allowed)

    def is_refused(self, archive: Archive, on_conflict: OnConflict) -> bool:
        """Return True if adopting the archive must fail: it is adopted already, or has a path of another file."""
        is_taken = on_conflict is OnConflict.FAIL and not self.live.keys().isdisjoint(archive.files)
        return is_taken or bool(self.raw.adopted(archive.path))

    def absorb_removal(self, paths: Collection[str], allowed: Allowed) -> None:
        for path in paths:
            if path in self.live:
                self.removed[path] = self.live[path], self.places[path]
            allowed[path] = {None}

    def to_restore(self, paths: Collection[str]) -> Contents:
        """Return the contents that undelete of these paths would bring back."""
        states = self.raw.states()
        return {
            path: self.removed[path][0]
            for path in paths
            if path not in self.live
            and path in self.removed
            and states[self.removed[path][1]] in ("committed", "retired")
        }

    def check_pending(self) -> None:
        """Check each chunk of a dead writer: adopted if whole, abandoned if not, or not recovered yet."""
        states = self.raw.states()
        for chunk, is_whole in self.pending.items():
            expected = ("committed", "retired", "deleted") if is_whole else ("abandoned",)
            assert states[chunk] in (*expected, "writing"), (
                f"a chunk that is whole: {is_whole}, became {states[chunk]}"
            )
        self.pending = self.raw.writing()

    @property
    def version(self) -> tuple[int, int]:
        """A value that differs after each change."""
        return self.raw.seen, len(self.adopted)

    def is_new(self, verb: str) -> bool:
        """Return True if anything has changed since the verb last ran.

        A verb that changes nothing runs only once.
        """
        return bool(self.live or self.removed) and self.done_at.get(verb) != self.version

    def count(self, verb: str) -> None:
        self.steps[verb] += 1
        self.done_at[verb] = self.version


def _enter(files: Mapping[str, bytes], keeps: bool, allowed: Allowed) -> None:
    """Enter the files of a chunk. keeps: a path that exists already keeps its content."""
    for path, content in files.items():
        before: Iterable[bytes | None] = allowed.get(path, {None}) if keeps else {None}
        allowed[path] = {content if other is None else other for other in before}
