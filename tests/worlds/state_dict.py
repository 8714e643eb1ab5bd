"""The dict that the state machine of custody has beside the catalog, and how it follows what was done."""

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
    """live: what every path has, and places: in which chunk; removed: what was removed last, and in which chunk
    that is; pending: chunks of dead writers, and whether their objects are whole; is_left: something was killed
    since the last recover; archives: of somebody else, and adopted: the chunks that they became, also if they were
    let go since."""

    steps: ClassVar[Counter[str]] = Counter()

    def __init__(self, urls: tuple[str, str]) -> None:
        """urls: of a catalog, and of another for what is rebuilt."""
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
        """New files in a folder of their own; no two times and no two contents (but empty ones) are the same."""
        folder = Path(self._folder.name) / f"source-{self.written}"
        files = self._contents(sizes)
        for number, (path, content) in enumerate(files.items()):
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            os.utime(file, (FIRST_TIME + self.written - number,) * 2)
        return Batch(folder, files, archive_format, target_size, on_conflict)

    def archive(self, sizes: Mapping[str, int], archive_format: str, prefix: str, again: int | None) -> Archive:
        """A new one in a folder of its own; or, if `again` is a number, one of those that there are."""
        if again is not None and self.archives:
            return self.archives[again % len(self.archives)]
        folder = Path(self._folder.name) / f"archive {len(self.archives)}"
        path = folder / f"{len(self.archives)}.of somebody"
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
        """Something that comes to its end, or as far as so many calls."""
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
        """Takes over what the journal says has happened, record by record; what a chunk that recover committed had
        to yield to is seen in the catalog, which has either the file of before or that of the chunk. Of an archive
        that was adopted there is no record: its row says it."""
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
            assert found.get(path) in allowed.get(path, {None}), f"{path!r} has what nobody committed last"
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
        """All of its files, or, if it has not become a chunk, none."""
        chunks = set(self.raw.adopted(archive.path)) - self.adopted
        assert len(chunks) <= 1
        if chunks:
            self.adopted |= chunks
            _enter(archive.files, on_conflict is OnConflict.SKIP, allowed)

    def is_refused(self, archive: Archive, on_conflict: OnConflict) -> bool:
        """Whether an archive cannot be adopted: it was before, or has a path of another file."""
        is_taken = on_conflict is OnConflict.FAIL and not self.live.keys().isdisjoint(archive.files)
        return is_taken or bool(self.raw.adopted(archive.path))

    def absorb_removal(self, paths: Collection[str], allowed: Allowed) -> None:
        for path in paths:
            if path in self.live:
                self.removed[path] = self.live[path], self.places[path]
            allowed[path] = {None}

    def to_restore(self, paths: Collection[str]) -> Contents:
        """What undelete would bring back of these."""
        states = self.raw.states()
        return {
            path: self.removed[path][0]
            for path in paths
            if path not in self.live
            and path in self.removed
            and states[self.removed[path][1]] in ("committed", "retired")
        }

    def check_pending(self) -> None:
        """What dead writers left was adopted if it was whole, abandoned if not, or is still to be settled."""
        states = self.raw.states()
        for chunk, is_whole in self.pending.items():
            expected = ("committed", "retired", "deleted") if is_whole else ("abandoned",)
            assert states[chunk] in (*expected, "writing"), (
                f"a chunk that is whole: {is_whole}, became {states[chunk]}"
            )
        self.pending = self.raw.writing()

    @property
    def moment(self) -> tuple[int, int]:
        """Another one after each change."""
        return self.raw.seen, len(self.adopted)

    def is_new(self, verb: str) -> bool:
        """Whether anything has changed since it was done last: what changes nothing is done once, not again and
        again."""
        return bool(self.live or self.removed) and self.done_at.get(verb) != self.moment

    def count(self, what: str) -> None:
        self.steps[what] += 1
        self.done_at[what] = self.moment


def _enter(files: Mapping[str, bytes], keeps: bool, allowed: Allowed) -> None:
    """keeps: what a path has stays."""
    for path, content in files.items():
        before: Iterable[bytes | None] = allowed.get(path, {None}) if keeps else {None}
        allowed[path] = {content if other is None else other for other in before}
