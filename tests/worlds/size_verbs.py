"""Every verb that reads or writes tables of files, as the tests of plans and the benchmark of the catalog run it.

Each takes the world, a repository of it, and the name of a round. A round has folders of its own, and the verbs of
a list build on those before them. The result of each verb is asserted, so that no verb is fast by doing nothing.
"""

import contextlib
import shutil
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any

import cafcat
from cafcat.formats.caf.format import CAF
from cafcat.model import ArchiveUnits, LogUnit, OnConflict
from cafcat.operations.adopt.report import AdoptReport
from cafcat.reports import IngestReport
from cafcat.testing.formats import pack
from tests.worlds.catalog_world import MODIFIED
from tests.worlds.listeners import follow
from tests.worlds.recover_world import leave_whole, recover
from tests.worlds.size_world import FILES, SizeWorld

__all__ = ["FILLING", "READING", "READING_ALL", "WRITING", "Verb", "prepared"]

Verb = Callable[[SizeWorld, cafcat.Repository, str], object]


def prepared(world: SizeWorld, repository: cafcat.Repository) -> None:
    """Ingest, change, remove and bring back a folder, so that each table of the catalog has a few rows."""
    for text in ("first", "second, longer"):
        _ingest(world, repository, world.write("tree", text))
    repository.rm(folders=["tree"])
    repository.undelete(folders=["tree"])


def ingest_new(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    report = _ingest(world, repository, world.write(f"new-{round}"))
    assert report.files_added == FILES


def ingest_unchanged(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    assert _ingest(world, repository, f"new-{round}").files_unchanged == FILES


def ingest_compared(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    """Ingest the files again from another folder: they are read and compared, and get another source."""
    with world.at_sources(), TemporaryDirectory() as elsewhere:
        shutil.copytree(f"new-{round}", f"{elsewhere}/new-{round}")
        with contextlib.chdir(elsewhere):
            report = repository.ingest([f"new-{round}"], jobs=1)
    assert (report.files_compared, report.files_unchanged) == (FILES, FILES)


def ingest_changed(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    assert _ingest(world, repository, world.write("tree", f"changed {round}" * 2)).files_replaced == FILES


def ingest_changed_with_skip(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    world.write("tree", f"not taken {round}" * 3)
    assert _ingest(world, repository, "tree", on_conflict=OnConflict.SKIP).files_skipped == FILES


def commit_beside_another_run(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    """Leave a chunk whose paths a later run replaced, so that recover adopts it and skips its files."""
    files = dict.fromkeys(world.paths(f"new-{round}"), b"late")
    leave_whole(repository, files)
    world.write(f"new-{round}", "newer, longer")
    assert _ingest(world, repository, f"new-{round}").files_replaced == FILES


def recover_with_adoption(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    leave_whole(repository, {f"left-{round}/{number}": b"left" for number in range(FILES)})
    assert recover(repository).adopted


def adopt_new(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    """Adopt an archive. The statement of this verb once took five minutes."""
    assert _adopt(world, repository, f"adopted-{round}", OnConflict.FAIL).files == FILES


def adopt_dry_run(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    assert _adopt(world, repository, f"adopted-{round}", OnConflict.SKIP, dry_run=True).skipped == FILES


def adopt_taken_names(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    assert _adopt(world, repository, f"adopted-{round}", OnConflict.FAIL).failed


def adopt_with_skip(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    assert _adopt(world, repository, f"adopted-{round}", OnConflict.SKIP).skipped == FILES


def adopt_with_replace(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    assert _adopt(world, repository, f"adopted-{round}", OnConflict.REPLACE).files == FILES


def rm_dry_run(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    names = world.paths(f"new-{round}")
    assert repository.rm(names[:5], folders=["tree"], dry_run=True).files == FILES + 5


def rm_names(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    assert repository.rm([*world.paths(f"new-{round}"), "absent"]).files == FILES


def rm_folder(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    assert repository.rm(folders=["tree"]).files == FILES


def list_removed(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    assert len(list(repository.removed("tree"))) == FILES


def undelete_names(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    assert repository.undelete([*world.paths(f"new-{round}"), "absent"]).files == FILES


def undelete_folder(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    assert repository.undelete(folders=["tree"]).files == FILES


def repack(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    assert repository.repack(chunks=[world.chunk_of(f"new-{round}")]).files_moved == FILES


def repack_wasteful(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    repository.repack(dry_run=True)


def copy(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    report = repository.copy(to=world.copies.as_uri(), prefix=f"new-{round}")
    assert report.copied == 1


def verify(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    for level in ("index", "data"):
        report = repository.verify(level=level, prefix=f"new-{round}", jobs=1)
        assert report.ok


def repair(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    """Damage a chunk that has a copy: verify records the damage, repair restores the files from the copy."""
    chunk = world.chunk_of(f"new-{round}")
    [path] = (world.folder / "store").rglob(f"{chunk}*")
    data = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    assert repository.verify(level="data", chunks=[chunk], jobs=1).damaged
    assert repository.repair(from_copies=True).files == FILES


def prune(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    assert repository.prune(grace_seconds=0).chunks


def write_journal(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    """Write the journal records that an earlier verb could not write."""
    world.sql("UPDATE journal SET unwritten = ARRAY[(SELECT store FROM chunks WHERE id = 1)] WHERE id = 1")
    assert recover(repository).records_written


def enter_logs(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    from cafcat.catalog.files.log_units import add_units, drop_units

    chunk = int(str(world.sql("SELECT max(id) FROM chunks")[0][0]))
    units = ArchiveUnits([LogUnit(f"logs-{round}/{number}", 0, 1) for number in range(FILES)])
    with repository.session.catalog.commit._connection.transaction() as connection:
        add_units(connection, chunk, units, exclusive=True)
        drop_units(connection, chunk)


WRITING: list[Verb] = [
    ingest_new,
    ingest_unchanged,
    ingest_compared,
    ingest_changed,
    ingest_changed_with_skip,
    commit_beside_another_run,
    recover_with_adoption,
    adopt_new,
    adopt_dry_run,
    adopt_taken_names,
    adopt_with_skip,
    adopt_with_replace,
    rm_dry_run,
    rm_names,
    rm_folder,
    list_removed,
    undelete_names,
    undelete_folder,
    repack,
    repack_wasteful,
    copy,
    verify,
    repair,
    prune,
    write_journal,
    enter_logs,
]


def read_one(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    assert repository.read(world.paths("tree")[0])
    assert repository.history(world.paths("tree")[0])


def read_many(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    contents = dict(repository.read_many([*world.paths("tree"), "synthetic/00000000", "absent"]))
    assert len(contents) == FILES + 2


def read_as_of(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    then = repository.as_of("0s")
    assert len(dict(then.read_many([*world.paths("tree"), "absent"]))) == FILES + 1
    assert then.plan_extract("tree").files == FILES


def list_all_below(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    assert len(list(repository.list("tree"))) == FILES


def list_one_level(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    assert [entry.path for entry in repository.list_folder("tree")]
    assert len(list(repository.list_folder(""))) > 3


def find(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    assert not list(repository.find("tree", min_size=1_000_000))
    assert list(repository.find("tree", name="*7.txt"))


def glob(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    assert list(repository.glob("tree/**/*7.txt"))
    assert len(list(repository.expand(["tree/**"]))) == FILES


def plan_extract(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    assert repository.plan_extract("tree").files == FILES
    assert repository.plan_extract(["tree/**/*7.txt", "tree/none*", "tree/"], exclude=["*7.txt"]).files < FILES


def extract(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    assert repository.extract("tree", world.folder / f"extracted-{round}").files == FILES


def chunk_files(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    assert len(list(repository.chunk_files(world.chunk_of("tree")))) == FILES


def snapshot(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    assert repository.snapshot(world.folder / f"{round}.snapshot", "tree").files == FILES


def export(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    assert repository.export(["tree", world.paths(f"new-{round}")[0]], world.folder / f"{round}.caf").files > FILES


def list_logs(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    assert len(list(repository.units("synthetic/7.log"))) == 1
    assert not list(repository.session.catalog.logs.archives("caf", "synthetic/absent", None, None))


def list_keys(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    """List pages and levels as the S3 server does, with other delimiters than a slash, too."""
    files = repository.session.catalog.files
    assert len(files.range_page("tree/", "tree0", FILES)) == FILES
    assert len(files.range_page("", None, FILES)) == FILES
    for delimiter in ("/", "e", "e/"):
        assert files.level_page("", None, skipped=0, delimiter=delimiter, limit=FILES)
        assert files.level_page("t", "u", skipped=1, delimiter=delimiter, limit=FILES)


def list_versions(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    versions = repository.session.catalog.versions
    found = versions.page("tree/", "tree0", FILES)
    assert found.following
    assert len(found.versions) > 1
    assert versions.page("", None, FILES).following
    first = found.versions[0].location
    assert versions.find(first.path, first.chunk, first.start_byte, first.end_byte) == first
    versions.last_removal(first.path)
    versions.find_removal(first.path, first.chunk, first.start_byte, first.end_byte)


def console_pages(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    """Look at the pages of the console that read rows of files. A search reads more paths, but a fixed number."""
    from cafcat.serve.console.page import Visit
    from cafcat.serve.console.pages import browse, chunk, file, views
    from cafcat.serve.console.visitors import Visitor
    from cafcat.serve.s3.visible import Visible

    uuid, path = world.chunk_of("tree"), world.paths("tree")[0]
    for page, values in (
        (chunk, {"uuid": uuid}),
        (chunk, {"uuid": uuid, "after": path}),
        (browse, {"path": "tree/"}),
        (file, {"path": path}),
        (views, {"name": "files"}),
        (views, {"name": "files", "key": path}),
        (views, {"name": "folders"}),
        (views, {"name": "file_history", "file_path": path}),
        (views, {"name": "lost_with", "chunk": uuid}),
    ):
        shown = views.VIEW_PAGE if page is views else page.PAGE
        shown.query(Visit(repository, Visitor(None, Visible([""])), values))


READING: list[Verb] = [
    console_pages,
    read_one,
    read_many,
    read_as_of,
    list_all_below,
    list_one_level,
    find,
    glob,
    plan_extract,
    extract,
    chunk_files,
    snapshot,
    export,
    list_logs,
    list_keys,
    list_versions,
]


def check_database(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    repository.session.catalog.reports.findings()


def stats(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    repository.stats()


def verify_catalog(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    repository.verify(level="catalog")


def compare(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    assert repository.compare(world.database_url).equal


def backup(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    repository.backup(world.copies.as_uri())


def restore(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    repository.restore(source=world.copies.as_uri())


def rebuild(world: SizeWorld, repository: cafcat.Repository, round: str) -> None:
    repository.rebuild(accept_loss=True)


READING_ALL: dict[Verb, str] = {
    check_database: "each of its checks reads all rows",
    verify_catalog: "it runs the same checks, and records them in the catalog",
    stats: "it counts retired_locations, for which chunks have no counter",
    compare: "it compares every row with the row of another catalog",
    backup: "it writes every row",
}
"""Verbs that read whole tables by their nature, and why."""
FILLING: dict[Verb, str] = {
    restore: "it writes every row into an empty catalog",
    rebuild: "it writes a row for every file of the stores into an empty catalog",
}


def _ingest(world: SizeWorld, repository: cafcat.Repository, folder: str, **options: Any) -> IngestReport:
    with world.at_sources():
        return follow(repository, options).ingest([folder], jobs=1, **options)


def _adopt(
    world: SizeWorld, repository: cafcat.Repository, prefix: str, on_conflict: OnConflict, *, dry_run: bool = False
) -> AdoptReport:
    path = world.folder / f"{prefix}-{on_conflict}-{len(list(world.folder.glob('*.caf')))}.caf"
    data, _, _ = pack(CAF, [(f"{number:05}", b"adopted", MODIFIED) for number in reversed(range(FILES))])
    path.write_bytes(data)
    return repository.adopt([path], prefix=prefix, on_conflict=on_conflict, dry_run=dry_run)
