"""Custody against a dict: after any operations, killed or not, the catalog has the files and contents of the dict.

The effects of a killed operation are complete or absent for each chunk.
"""

import os
from collections.abc import Callable, Iterator
from functools import partial, wraps
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule, run_state_machine_as_test

from cafcat.model import OnConflict
from tests.worlds import state_world as world
from tests.worlds.archives.written_formats import WRITTEN
from tests.worlds.servers.services import Databases
from tests.worlds.state_dict import Followed
from tests.worlds.state_world import LOGS, Raw

PATHS = ["t/a", "t/b", "t/folder/c", "t/folder/d", "t/folder/deep/e", "t/é", "t/new\nline", "t/%_\\x"]
FOLDERS = ["t/folder", "t/folder/deep", "t", "far"]
NAMES = ["a", "c", "folder/c", "deep/e", "new\nline"]
"""Names in third-party archives. With some of PREFIXES before them, they are among PATHS."""
PREFIXES = ["t", "t/folder", "far"]
MIB = 1 << 20

SIZES = st.sampled_from([0, 1, 40, 700, 3000]) | st.just(MIB + 5)
FILES = st.dictionaries(st.sampled_from(PATHS), SIZES, min_size=1, max_size=6)
FORMATS = st.sampled_from(WRITTEN)
TARGETS = st.sampled_from([400, 4000, 10**9])
CONFLICTS = st.sampled_from([OnConflict.REPLACE, OnConflict.REPLACE, OnConflict.SKIP])
BATCHES = st.tuples(FILES, FORMATS, TARGETS, CONFLICTS)
EVERY_PATH = list(dict.fromkeys([*PATHS, *(f"{prefix}/{name}" for prefix in PREFIXES for name in NAMES)]))
SOME_PATHS = st.lists(st.sampled_from(PATHS) | st.sampled_from(EVERY_PATH), min_size=1, max_size=4, unique=True)
CALLS = st.integers(1, 160)
FEW_CALLS = st.integers(1, 30)
MAYBE_CALLS = st.just(0) | CALLS
ARCHIVES = st.tuples(
    st.dictionaries(st.sampled_from(NAMES), SIZES, min_size=1, max_size=4),
    st.sampled_from([*WRITTEN, LOGS]),
    st.sampled_from(PREFIXES),
    st.none() | st.integers(0, 9),
)
ADOPTIONS = st.tuples(ARCHIVES, st.sampled_from(OnConflict))

FEW, NIGHTLY = (4, 18), (300, 60)
"""Number of examples, and steps of each example."""

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda whole: whole[: len(whole) // 2],
    "empty": lambda whole: whole[:0],
    "gone": lambda whole: whole,
    "inverted": lambda whole: bytes(byte ^ 0xFF for byte in whole),
    "first bit": lambda whole: one_bit(whole, 0),
    "a bit in the middle": lambda whole: one_bit(whole, len(whole) // 2),
    "last bit": lambda whole: one_bit(whole, len(whole) - 1),
    "longer": lambda whole: whole + b"}",
}
"""Damages that verify finds in every format, even if no file is affected: a chunk's row has a checksum of all
bytes."""

Step = Callable[..., None]


def one_bit(whole: bytes, byte: int) -> bytes:
    return whole[:byte] + bytes([whole[byte] ^ 1]) + whole[byte + 1 :]


def only_if(condition: Callable[["CustodyMachine"], object]) -> Callable[[Step], Step]:
    """Run a step only if a condition holds.

    A `precondition` of hypothesis would not do: hypothesis requires the same steps for the same choices, but the
    condition also depends on the moment at which a kill hits.
    """

    def decorate(step: Step) -> Step:
        @wraps(step)
        def done(self: "CustodyMachine", **given: Any) -> None:
            if condition(self):
                step(self, **given)

        return done

    return decorate


class CustodyMachine(Followed):
    """Operations on a catalog and a dict.

    adopts: third-party archives are adopted. A rebuild cannot find these. Only without them must it give an equal
    catalog.
    """

    adopts = False

    # Operations.

    @initialize(given=BATCHES, adopts=st.booleans())
    def begin(self, given: Any, adopts: bool) -> None:
        self.adopts = adopts
        self.ingest(given)

    @rule(given=BATCHES)
    def ingest(self, given: Any) -> None:
        batch = self.batch(*given)
        batch.ingest(self.repository)
        self.absorb()
        for path, content in batch.files.items():
            assert path in self.live, f"{path!r} was not ingested"
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
            assert end or set(batch.files) <= set(self.live), "a file was not ingested"
            self.is_left = self.is_left or end is not None
        self.count("two writers")

    @rule(given=BATCHES, calls=CALLS)
    def killed_ingest(self, given: Any, calls: int) -> None:
        self.killed("ingest", self.batch(*given).ingest, calls)

    @rule(given=ADOPTIONS)
    @only_if(lambda self: self.adopts)
    def adopt(self, given: Any) -> None:
        archive, on_conflict = self.archive(*given[0]), given[1]
        refused = self.is_refused(archive, on_conflict)
        world.adopt(self.repository, archive, on_conflict, refused)
        self.absorb(adopting=(archive, on_conflict))
        assert refused or archive.files.keys() <= self.live.keys(), "a file was not adopted"
        self.count("adopt, refused" if refused else "adopt")

    @rule(given=ADOPTIONS, calls=FEW_CALLS)
    @only_if(lambda self: self.adopts)
    def killed_adopt(self, given: Any, calls: int) -> None:
        archive, on_conflict = self.archive(*given[0]), given[1]
        refused = self.is_refused(archive, on_conflict)
        act = partial(world.adopt, archive=archive, on_conflict=on_conflict, refused=refused)
        before = len(self.adopted)
        self.killed("adopt", act, calls, adopting=(archive, on_conflict))
        assert not refused or len(self.adopted) == before

    @rule(choice=st.integers(0, 99), archive_format=FORMATS, calls=MAYBE_CALLS)
    @only_if(lambda self: self.raw.adopted_and_live())
    def rewrite_adopted(self, choice: int, archive_format: str, calls: int) -> None:
        """Rewrite the files of a third-party archive into cafcat's own chunks."""
        chunks = self.raw.adopted_and_live()
        chunk = chunks[choice % len(chunks)]
        self.killed("rewrite adopted", partial(world.rewrite, chunk=chunk, archive_format=archive_format), calls)
        assert calls or chunk not in self.raw.adopted_and_live()

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
        self.absorb(removing=[path for path in {*EVERY_PATH, *self.live} if path.startswith(f"{folder}/")])
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
    @only_if(lambda self: self.is_new("prune") and self.is_new("prune that lets an archive go"))
    def prune(self, times: int) -> None:
        states = self.raw.states()
        lets_go = any(states[chunk] == "retired" for chunk in self.adopted)
        for _ in range(times):
            world.prune(self.repository)
        self.absorb()
        assert "retired" not in self.raw.states().values()
        self.count("prune that lets an archive go" if lets_go else "prune")

    @rule(calls=CALLS)
    @only_if(lambda self: self.live or self.removed)
    def killed_prune(self, calls: int) -> None:
        self.killed("prune", world.prune, calls)

    @rule(target_size=TARGETS, archive_format=st.none() | FORMATS)
    @only_if(lambda self: self.live)
    def repack(self, target_size: int, archive_format: str | None) -> None:
        world.repack(self.repository, target_size, archive_format)
        self.absorb()
        assert archive_format is None or self.raw.formats() <= {archive_format}
        self.count("repack into a format" if archive_format else "repack")

    @rule(target_size=TARGETS, archive_format=st.none() | FORMATS, calls=CALLS)
    @only_if(lambda self: self.live)
    def killed_repack(self, target_size: int, archive_format: str | None, calls: int) -> None:
        act = partial(world.repack, target_size=target_size, archive_format=archive_format)
        self.killed("repack", act, calls)

    @rule(times=st.integers(1, 2))
    @only_if(lambda self: self.is_new("copy"))
    def copy(self, times: int) -> None:
        for _ in range(times):
            world.copy(self.repository, str(self.copies))
        self.absorb()
        assert len(self.raw.copied()) == self.raw.own_chunks()
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

    @rule(choice=st.integers(0, 99), damage=st.sampled_from(sorted(DAMAGES)), repaired=st.booleans())
    @only_if(lambda self: self.raw.own_chunks())
    def damage(self, choice: int, damage: str, repaired: bool) -> None:
        """Damage a chunk that has a copy: reads use the copy, verify finds the damage, repair packs the files anew.

        Repair also recovers leftovers of dead writers before it. The step ends with the original object in place.
        """
        world.copy(self.repository, str(self.copies))
        copied = self.raw.copied()
        if not copied:  # recover removed the last file from the last chunk
            return
        file = self.raw.folder / copied[choice % len(copied)]
        whole = file.read_bytes()
        file.write_bytes(DAMAGES[damage](whole))
        if damage == "gone":
            file.unlink()
        self.reads_return_the_dict()
        assert world.verify(self.repository, "data") == 1
        if repaired:
            self.repository.repair(from_copies=True)
            self.absorb()
        file.write_bytes(whole)
        self.absorb()
        self.count("repair" if repaired else "damage")

    @rule(times=st.integers(1, 2))
    @only_if(lambda self: self.is_new("rebuild"))
    def rebuild(self, times: int) -> None:
        """Rebuild a catalog after one or two recovers."""
        for _ in range(times):
            self.recover_all()
        stores = [str(folder) for folder in (self.raw.folder, self.copies) if world.objects_in(folder)]
        if not stores:  # all chunks were pruned, and the files that replaced theirs are in adopted archives
            return
        world.empty(self.other_url)
        if self.adopted:
            world.rebuild(self.repository, self.other_url, stores)
            self.check_rebuilt()
        else:
            world.rebuild_and_compare(self.repository, self.other_url, stores)
        self.count("rebuild with archives adopted before" if self.adopted else "rebuild")

    def check_rebuilt(self) -> None:
        """Check that the rebuilt catalog has all paths in cafcat's own chunks.

        Paths in third-party archives may be missing from it, or have their earlier files.
        """
        other = Raw(self.other_url, self.raw.folder)
        expected, rebuilt = self.raw.own_places(), other.own_places()
        assert expected.items() <= rebuilt.items()
        assert rebuilt.keys() - expected.keys() <= self.live.keys()
        assert rebuilt.keys() == other.live().keys()
        other.close()

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
        """Recover once or twice, if a killed operation may have left something."""
        for _ in range(times):
            self.recover_all()
        self.count("recover")

    def recover_all(self) -> None:
        world.recover(self.repository)
        self.absorb()
        assert not self.pending
        objects, named = world.objects_in(self.raw.folder), self.raw.named("o.state IN ('committed', 'retired')")
        assert objects <= named
        assert named - objects <= (self.raw.early_records() if self.adopted else set())
        copies = world.without_journal(world.objects_in(self.copies))
        if not self.raw.named_copies("true"):  # recover does not look into a store that no row names
            copies = world.without_probes(copies)
        assert copies == self.raw.named_copies("o.state = 'committed'")
        assert self.catalog.reports.findings() == []
        self.is_left = False

    @rule(calls=CALLS)
    @only_if(lambda self: self.is_left)
    def killed_recover(self, calls: int) -> None:
        self.killed("recover", world.recover, calls)

    # Invariants.

    @invariant()
    def third_party_archives_are_unchanged(self) -> None:
        for archive in self.archives:
            assert archive.now == archive.made
            assert os.listdir(archive.path.parent) == [archive.path.name]

    @invariant()
    def catalog_equals_the_dict(self) -> None:
        assert self.raw.live() == self.live

    @invariant()
    def reads_return_the_dict(self) -> None:
        for path, content in self.live.items():
            assert self.repository.read(path) == content
        assert [location.path for location in self.repository.list()] == sorted(self.live, key=str.encode)

    @invariant()
    def only_recover_has_work(self) -> None:
        found = self.catalog.reports.findings()
        assert not [finding for finding in found if "cafcat recover" not in finding]

    @invariant()
    def rows_name_all_objects(self) -> None:
        objects = world.without_probes(world.objects_in(self.raw.folder))
        copies = world.without_probes(world.without_journal(world.objects_in(self.copies)))
        assert {name.removesuffix(".partial") for name in objects} <= self.raw.named("o.deleted_at IS NULL")
        assert {name.removesuffix(".partial") for name in copies} <= self.raw.named_copies("o.deleted_at IS NULL")
        assert world.without_journal(self.raw.named("o.state IN ('committed', 'retired')")) <= objects
        assert self.raw.named_copies("o.state = 'committed'") <= copies


@pytest.fixture
def counted(capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Print the number of steps of each kind at the end."""
    CustodyMachine.steps.clear()
    yield
    with capsys.disabled():
        steps = ", ".join(f"{count} {verb}" for verb, count in sorted(CustodyMachine.steps.items()))
        print(f"\n{CustodyMachine.steps.total():,} steps: {steps}")


@pytest.mark.hypothesis  # hypothesis marks only its own functions
def test_custody_equals_a_dict(databases: Databases, counted: None) -> None:
    """Run a few examples; with `make nightly`, at least ten thousand steps."""
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
