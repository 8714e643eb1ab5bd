"""Custody against a dict: whatever is done, and whatever is killed while it is done, the catalog has the files that
the dict has, with their bytes; what was killed happened wholly or not at all, chunk by chunk."""

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial, wraps
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

import cafcat
from cafcat.database import Database
from cafcat.model import OnConflict
from tests import state_world as world
from tests.services import Databases
from tests.state_world import Batch, Line, Raw

PATHS = ["t/a", "t/b", "t/folder/c", "t/folder/d", "t/folder/deep/e", "t/é", "t/new\nline", "t/%_\\x"]
FOLDERS = ["t/folder", "t/folder/deep", "t"]
FIRST_TIME = 1_795_255_200
MIB = 1 << 20

SIZES = st.sampled_from([0, 1, 40, 700, 3000]) | st.just(MIB + 5)
FILES = st.dictionaries(st.sampled_from(PATHS), SIZES, min_size=1, max_size=6)
TARGETS = st.sampled_from([400, 4000, 10**9])
CONFLICTS = st.sampled_from([OnConflict.REPLACE, OnConflict.REPLACE, OnConflict.SKIP])
BATCHES = st.tuples(FILES, TARGETS, CONFLICTS)
SOME_PATHS = st.lists(st.sampled_from(PATHS), min_size=1, max_size=4, unique=True)
CALLS = st.integers(1, 160)
MAYBE_CALLS = st.just(0) | CALLS

FEW, NIGHTLY = (4, 18), (300, 60)
"""Examples, and steps of each."""

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda whole: whole[: len(whole) // 2],
    "empty": lambda whole: whole[:0],
    "gone": lambda whole: whole,
    "inverted": lambda whole: bytes(byte ^ 0xFF for byte in whole),
    "one bit": lambda whole: bytes([whole[0] ^ 1]) + whole[1:],
    "longer": lambda whole: whole + b"}",
}

Contents = dict[str, bytes]
Step = Callable[..., None]
Allowed = dict[str, set[bytes | None]]


def only_if(condition: Callable[["CustodyMachine"], object]) -> Callable[[Step], Step]:
    """The step is done if that holds, else passed over. It is no precondition: hypothesis wants to draw the same
    steps whenever it is given the same choices, and where a kill hits depends on more than these."""

    def decorate(step: Step) -> Step:
        @wraps(step)
        def done(self: "CustodyMachine", **given: Any) -> None:
            if condition(self):
                step(self, **given)

        return done

    return decorate


class CustodyMachine(RuleBasedStateMachine):
    """live: what every path has, and places: in which chunk; removed: what was removed last, and in which chunk
    that is; pending: chunks of dead writers, and whether their objects are whole; is_left: something was killed
    since the last recover."""

    steps: ClassVar[Counter[str]] = Counter()

    def __init__(self, urls: tuple[str, str]) -> None:
        """urls: of a catalog, and of another for what is rebuilt."""
        super().__init__()
        self.live: Contents = {}
        self.removed: dict[str, tuple[bytes, int]] = {}
        self.pending: dict[int, bool] = {}
        self.places: dict[str, int] = {}
        self.done_at: dict[str, int] = {}
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
        self.raw.sql.close()
        self._folder.cleanup()

    # What is done.

    @initialize(given=BATCHES)
    def begin(self, given: Any) -> None:
        self.ingest(given)

    @rule(given=BATCHES)
    def ingest(self, given: tuple[Mapping[str, int], int, OnConflict]) -> None:
        batch = self.batch(*given)
        batch.ingest(self.repository)
        self.absorb()
        for path, content in batch.files.items():
            assert path in self.live, f"{path!r} was not taken"
            if batch.on_conflict is OnConflict.REPLACE:
                assert self.live[path] == content
        self.count("ingest")

    @rule(first=BATCHES, second=BATCHES, calls=st.tuples(MAYBE_CALLS, MAYBE_CALLS))
    def two_writers(self, first: Any, second: Any, calls: tuple[int, int]) -> None:
        batches = [self.batch(*first), self.batch(*second)]
        children = [world.start(self.settings, batch.ingest, n) for batch, n in zip(batches, calls, strict=True)]
        ends = [child.wait() for child in children]
        self.absorb()
        for batch, end, n in zip(batches, ends, calls, strict=True):
            assert end is None or (n and end == "killed"), end
            assert end or set(batch.files) <= set(self.live), "a file was not taken"
            self.is_left = self.is_left or end is not None
        self.count("two writers")

    @rule(given=BATCHES, calls=CALLS)
    def killed_ingest(self, given: Any, calls: int) -> None:
        self.killed("ingest", self.batch(*given).ingest, calls)

    @rule(paths=SOME_PATHS)
    @only_if(lambda self: self.live)
    def remove(self, paths: list[str]) -> None:
        world.remove(self.repository, paths)
        self.absorb(removing=paths)
        self.count("rm")

    @rule(folder=st.sampled_from(FOLDERS))
    @only_if(lambda self: self.live)
    def remove_folder(self, folder: str) -> None:
        world.remove(self.repository, [], [folder])
        self.absorb(removing=[path for path in PATHS if path.startswith(f"{folder}/")])
        assert not any(path.startswith(f"{folder}/") for path in self.live)
        self.count("rm")

    @rule(paths=SOME_PATHS, calls=CALLS)
    @only_if(lambda self: self.live)
    def killed_remove(self, paths: list[str], calls: int) -> None:
        self.killed("rm", partial(world.remove, paths=paths), calls, removing=paths)

    @rule(paths=SOME_PATHS)
    @only_if(lambda self: self.removed)
    def undelete(self, paths: list[str]) -> None:
        back = self.to_restore(paths)
        world.undelete(self.repository, paths)
        self.absorb(restoring=paths)
        assert all(self.live[path] == content for path, content in back.items())
        self.count("undelete")

    @rule(paths=SOME_PATHS, calls=CALLS)
    @only_if(lambda self: self.removed)
    def killed_undelete(self, paths: list[str], calls: int) -> None:
        self.killed("undelete", partial(world.undelete, paths=paths), calls, restoring=paths)

    @rule(times=st.integers(1, 2))
    @only_if(lambda self: self.is_new("prune"))
    def prune(self, times: int) -> None:
        for _ in range(times):
            world.prune(self.repository)
        self.absorb()
        assert "retired" not in self.raw.states().values()
        self.count("prune")

    @rule(calls=CALLS)
    @only_if(lambda self: self.live or self.removed)
    def killed_prune(self, calls: int) -> None:
        self.killed("prune", world.prune, calls)

    @rule(target_size=TARGETS)
    @only_if(lambda self: self.live)
    def repack(self, target_size: int) -> None:
        world.repack(self.repository, target_size)
        self.absorb()
        self.count("repack")

    @rule(target_size=TARGETS, calls=CALLS)
    @only_if(lambda self: self.live)
    def killed_repack(self, target_size: int, calls: int) -> None:
        self.killed("repack", partial(world.repack, target_size=target_size), calls)

    @rule(times=st.integers(1, 2))
    @only_if(lambda self: self.is_new("copy"))
    def copy(self, times: int) -> None:
        for _ in range(times):
            world.copy(self.repository, str(self.copies))
        self.absorb()
        assert len(self.raw.copied()) == list(self.raw.states().values()).count("committed")
        self.count("copy")

    @rule(calls=CALLS)
    @only_if(lambda self: self.live)
    def killed_copy(self, calls: int) -> None:
        self.killed("copy", partial(world.copy, to=str(self.copies)), calls)

    @rule(level=st.sampled_from(["catalog", "index", "data"]))
    @only_if(lambda self: self.is_new("verify"))
    def verify(self, level: str) -> None:
        assert world.verify(self.repository, level) == 0
        self.count("verify")

    @rule(choice=st.integers(0, 99), damage=st.sampled_from(sorted(DAMAGES)), mend=st.booleans())
    @only_if(lambda self: self.live)
    def damage(self, choice: int, damage: str, mend: bool) -> None:
        """Reads take the copy; verify sees it; repair, which first settles what dead writers left, packs the files
        anew. Afterwards the right disk is back."""
        world.copy(self.repository, str(self.copies))
        copied = self.raw.copied()
        file = self.raw.folder / copied[choice % len(copied)]
        whole = file.read_bytes()
        file.write_bytes(DAMAGES[damage](whole))
        if damage == "gone":
            file.unlink()
        self.files_are_read_as_they_are()
        assert world.verify(self.repository, "data") == 1
        if mend:
            self.repository.custody.repair(from_copies=True)
            self.absorb()
        file.write_bytes(whole)
        self.absorb()
        self.count("repair" if mend else "damage")

    @rule(times=st.integers(1, 2))
    @only_if(lambda self: self.is_new("rebuild"))
    def rebuild(self, times: int) -> None:
        """As many recovers do no harm."""
        for _ in range(times):
            self.recover_all()
        stores = [str(folder) for folder in (self.raw.folder, self.copies) if folder.exists()]
        world.empty(self.other_url)
        world.rebuild_and_compare(self.repository, self.other_url, stores)
        self.count("rebuild")

    @rule(keep=st.integers(1, 3))
    @only_if(lambda self: self.is_new("backup"))
    def backup(self, keep: int) -> None:
        world.backup(self.repository, keep)
        self.absorb()
        world.empty(self.other_url)
        world.restore_and_compare(self.repository, self.other_url)
        self.count("backup")

    @rule(keep=st.integers(1, 3), calls=CALLS)
    @only_if(lambda self: self.live)
    def killed_backup(self, keep: int, calls: int) -> None:
        self.killed("backup", partial(world.backup, keep=keep), calls)

    @rule(times=st.integers(1, 2))
    @only_if(lambda self: self.is_left)
    def recover(self, times: int) -> None:
        """Only where something may be left."""
        for _ in range(times):
            self.recover_all()
        self.count("recover")

    def recover_all(self) -> None:
        world.recover(self.repository)
        self.absorb()
        assert not self.pending
        assert world.objects_in(self.raw.folder) == self.raw.named("o.state IN ('committed', 'retired')")
        copies = world.without_journal(world.objects_in(self.copies))
        assert copies == self.raw.named_copies("o.state = 'committed'")
        assert self.catalog.reports.findings() == []
        self.is_left = False

    @rule(calls=CALLS)
    @only_if(lambda self: self.is_left)
    def killed_recover(self, calls: int) -> None:
        self.killed("recover", world.recover, calls)

    # What holds.

    @invariant()
    def the_catalog_is_the_dict(self) -> None:
        assert self.raw.live() == self.live

    @invariant()
    def files_are_read_as_they_are(self) -> None:
        for path, content in self.live.items():
            assert self.repository.read(path) == content
        assert [location.path for location in self.repository.list()] == sorted(self.live, key=str.encode)

    @invariant()
    def sql_finds_nothing_but_work_for_recover(self) -> None:
        found = self.catalog.reports.findings()
        assert not [finding for finding in found if "cafcat recover" not in finding]

    @invariant()
    def the_store_has_nothing_that_no_row_names(self) -> None:
        objects = world.objects_in(self.raw.folder)
        copies = world.without_journal(world.objects_in(self.copies))
        assert {name.removesuffix(".partial") for name in objects} <= self.raw.named("o.deleted_at IS NULL")
        assert {name.removesuffix(".partial") for name in copies} <= self.raw.named_copies("o.deleted_at IS NULL")
        assert world.without_journal(self.raw.named("o.state IN ('committed', 'retired')")) <= objects
        assert self.raw.named_copies("o.state = 'committed'") <= copies

    # How the dict follows.

    def batch(self, sizes: Mapping[str, int], target_size: int, on_conflict: OnConflict) -> Batch:
        """New files in a folder of their own; no two times and no two contents (but empty ones) are the same."""
        folder = Path(self._folder.name) / f"source-{self.written}"
        files = {}
        for path, size in sizes.items():
            self.written += 1
            files[path] = Random(self.written).randbytes(size)
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(files[path])
            os.utime(file, (FIRST_TIME + self.written,) * 2)
        return Batch(folder, files, target_size, on_conflict)

    def killed(self, verb: str, act: Callable[[cafcat.Repository], object], calls: int, **changes: Any) -> None:
        """Something that comes to its end, or as far as so many calls."""
        end = world.start(self.settings, act, calls).wait()
        assert end in (None, "killed"), end
        self.absorb(**changes)
        self.is_left = self.is_left or end is not None
        self.count(f"{verb}, killed" if end else verb)

    def absorb(self, removing: Collection[str] = (), restoring: Collection[str] = ()) -> None:
        """Takes over what the journal says has happened, line by line; what an adopted chunk had to yield to is
        seen in the catalog, which has either the file of before or that of the chunk."""
        allowed: Allowed = {path: {content} for path, content in self.live.items()}
        for line in self.raw.new_lines():
            if line.kind == "commit":
                self.absorb_commit(line, allowed)
            elif line.kind == "remove":
                self.absorb_removal(removing, allowed)
            elif line.kind == "restore":
                allowed |= {path: {content} for path, content in self.to_restore(restoring).items()}
        found = self.raw.live()
        for path in PATHS:
            assert found.get(path) in allowed.get(path, {None}), f"{path!r} has what nobody committed last"
        self.live, self.places = found, self.raw.places()
        self.check_pending()

    def absorb_commit(self, line: Line, allowed: Allowed) -> None:
        assert line.key is not None
        for path, content in self.raw.entries(line.key).items():
            before = allowed.get(path, {None})
            if line.chunk in self.pending:
                allowed[path] = before | {content}
            elif line.keeps:
                allowed[path] = {content if other is None else other for other in before}
            else:
                allowed[path] = {content}

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

    def is_new(self, verb: str) -> bool:
        """Whether anything has changed since it was done last: what changes nothing is done once, not again and
        again."""
        return bool(self.live or self.removed) and self.done_at.get(verb) != self.raw.seen

    def count(self, what: str) -> None:
        CustodyMachine.steps[what] += 1
        self.done_at[what] = self.raw.seen


@pytest.fixture
def counted(capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Says at the end how many steps there were, and of what."""
    CustodyMachine.steps.clear()
    yield
    with capsys.disabled():
        steps = ", ".join(f"{count} {what}" for what, count in sorted(CustodyMachine.steps.items()))
        print(f"\n{CustodyMachine.steps.total():,} steps: {steps}")


def test_custody_is_a_dict(databases: Databases, counted: None) -> None:
    """A few examples; `make nightly`: ten thousand steps."""
    template = databases.template()
    is_nightly = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
    examples, steps = NIGHTLY if is_nightly else FEW
    with databases.fresh(template) as url, databases.fresh(template) as other:
        run_state_machine_as_test(
            lambda: CustodyMachine((url, other)),
            settings=settings(
                max_examples=examples,
                stateful_step_count=steps,
                deadline=None,
                print_blob=True,
                suppress_health_check=list(HealthCheck),
            ),
        )
    assert not is_nightly or CustodyMachine.steps.total() >= 10_000
