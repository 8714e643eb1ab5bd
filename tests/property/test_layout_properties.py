"""The same random history on a plain and on a partitioned catalog: all rows and all answers are equal."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cafcat
from cafcat.catalog.files.ranges import scope_ranges
from cafcat.catalog.files.scope import FindFilter, PathScope
from cafcat.model import Folder, Location, OnConflict
from tests.worlds.servers.services import Databases

PARTS = st.sampled_from(["a", "b", "é", "a.b", "a0", "0", "%", "z"])
PATHS = st.lists(PARTS, min_size=1, max_size=3).map("/".join)
FOLDERS = st.sampled_from(["", "a", "b", "a/b", "é", "a/a", "%"])
STEPS = st.one_of(
    st.tuples(st.just("write"), st.dictionaries(PATHS, st.binary(max_size=3), min_size=1, max_size=12)),
    st.tuples(st.just("skip"), st.dictionaries(PATHS, st.binary(max_size=3), min_size=1, max_size=12)),
    st.tuples(st.just("rm"), st.lists(PATHS, min_size=1, max_size=4)),
    st.tuples(st.just("rm folder"), FOLDERS.filter(bool)),
    st.tuples(st.just("undelete"), st.lists(PATHS, min_size=1, max_size=4)),
    st.tuples(st.just("undelete folder"), FOLDERS.filter(bool)),
    st.tuples(st.just("repack"), st.none()),
    st.tuples(st.just("assign source"), st.lists(PATHS, min_size=1, max_size=4)),
)
MODIFIED_NS = 1_795_255_200_000_000_000
PAGES = (1, 2, 1000)
LIVE = """
SELECT file_path, end_byte - start_byte, crc32c, modified_at, source_etag, content_bytes, decoding, source_id
FROM file_locations ORDER BY 1
"""
RETIRED = """
SELECT file_path, reason, end_byte - start_byte, crc32c, count(*) FROM retired_locations GROUP BY 1, 2, 3, 4
ORDER BY 1, 2, 3, 4
"""
CHUNKS = "SELECT state, file_count, live_file_count, live_bytes FROM chunks ORDER BY id"
JOURNAL = "SELECT kind FROM journal ORDER BY id"
EMPTY = "DELETE FROM file_locations; DELETE FROM retired_locations; DELETE FROM journal_files"


@pytest.fixture(scope="module")
def catalogs(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[cafcat.Repository]]:
    """A plain catalog, and a catalog with three partitions: not a power of two."""
    folder = tmp_path_factory.mktemp("layouts")
    with databases.fresh(databases.template()) as plain, databases.fresh(databases.template(), 3) as parted:
        opened = [opened_at(folder / name, url) for name, url in (("plain", plain), ("parted", parted))]
        yield opened
        for repository in opened:
            repository.close()


def opened_at(folder: Path, url: str) -> cafcat.Repository:
    folder.mkdir()
    return cafcat.open(database_url=url, home=folder / "home", store=str(folder / "store"))


def take(repository: cafcat.Repository, step: str, given: Any, number: int) -> object:
    """Run one step, and return what must be the same in both catalogs."""
    if step in ("write", "skip"):
        on_conflict = OnConflict.REPLACE if step == "write" else OnConflict.SKIP
        with repository.writer(on_conflict=on_conflict) as writer:
            for path, content in given.items():
                writer.add(path, content, modified_ns=MODIFIED_NS + number * 1000)
        report = writer.report
        return report.files_added, report.files_replaced, report.files_skipped
    if step == "assign source":
        rows = repository.session.catalog.files.locate_many(given)
        source = repository.session.catalog.sources.add("file:///source")
        return repository.session.catalog.sources.assign(source, [(path, row.crc32c) for path, row in rows.items()])
    if step == "repack":
        return repository.repack(max_unused=0.0).files_moved
    verb = repository.rm if step.startswith("rm") else repository.undelete
    report = verb(folders=[given]) if step.endswith("folder") else verb(given)
    return report.files, report.files_failed


def shown(found: Location | Folder | None) -> object:
    """Return what does not depend on the catalog: not the UUID, key and store of the chunk."""
    if found is None or isinstance(found, Folder):
        return found
    return found.path, found.size_bytes, found.crc32c, found.modified_ns


def listings(repository: cafcat.Repository, folder: str) -> Iterator[object]:
    catalog = repository.session.catalog
    name = f"{folder}/" if folder else ""
    for limit in PAGES:
        pages: list[Any] = []
        while len(page := catalog.files.page(name, after=pages[-1].path if pages else None, limit=limit)):
            pages += page
        yield [shown(found) for found in pages]
        level: list[Any] = []
        while page := catalog.files.folder_page(name, after=level[-1] if level else None, limit=limit):
            level += page
        yield [shown(found) for found in level]
        yield [shown(found) for found in catalog.files.level_page("", None, skipped=1, delimiter="b", limit=limit)]
        versions = catalog.versions.page(name, None, limit)
        yield sorted(shown(getattr(version, "location", version)) for version in versions.versions)
        yield versions.following
        yield [row.location.path for row in catalog.removal.removed(name, None, limit).files]
    yield [
        shown(row) for page in catalog.files.pages(folder, FindFilter(name_regex="a", min_size=2)) for row in page
    ]
    yield shown(catalog.files.entry(folder)) if folder else None
    yield catalog.files.totals("")
    ranges = scope_ranges(PathScope(name, folder or None))
    with catalog.export() as export:
        yield export.absent([ranges]), export.totals(ranges), sorted(map(shown, export.files(ranges)), key=str)
    with catalog.consistent_read() as files:
        yield files.totals(folder or None, name)
        yield [(row[0], row[4]) for page in files.files(folder or None, name) for row in page]


def answers(repository: cafcat.Repository, paths: list[str], folders: list[str]) -> Iterator[object]:
    catalog = repository.session.catalog
    with catalog.commit._connection.transaction() as connection:
        for statement in (LIVE, RETIRED, CHUNKS, JOURNAL):
            yield connection.execute(statement).fetchall()
    for _ in range(2):  # the second look-up is another statement
        yield {path: shown(row) for path, row in catalog.files.locate_many(paths).items()}
    yield catalog.files.folders_among(paths)
    yield [shown(catalog.files.entry(path)) for path in paths]
    yield catalog.reports.findings()
    for folder in folders:
        yield from listings(repository, folder)
    with catalog.dump.reading() as dump:
        yield [row.split(b"\t")[5] for row in dump.rows("file_locations")]


def emptied(repository: cafcat.Repository) -> None:
    """Start anew: chunks stay, but none is live."""
    with repository.session.catalog.commit._connection.transaction() as connection:
        connection.execute(EMPTY)
        connection.execute("TRUNCATE journal CASCADE")
        connection.execute("ALTER TABLE chunks DISABLE TRIGGER USER; TRUNCATE chunks CASCADE")
        connection.execute("ALTER TABLE chunks ENABLE TRIGGER USER")


# An example takes 0.4 seconds. `make explore` and `make fuzz` draw more of them.
@settings(max_examples=max(3, settings.default.max_examples // 100) if settings.default else 3)
@given(steps=st.lists(STEPS, min_size=2, max_size=8), asked=st.lists(PATHS, min_size=1, max_size=9, unique=True))
def test_layouts_have_the_same_rows_and_answers(
    catalogs: list[cafcat.Repository], steps: list[tuple[str, Any]], asked: list[str]
) -> None:
    for repository in catalogs:
        emptied(repository)
    for number, (step, value) in enumerate(steps):
        results = [take(repository, step, value, number) for repository in catalogs]
        assert results[0] == results[1], step
    folders = ["", *sorted({path.rpartition("/")[0] for path in asked} - {""})]
    plain, parted = (list(answers(repository, asked, folders)) for repository in catalogs)
    assert plain == parted
