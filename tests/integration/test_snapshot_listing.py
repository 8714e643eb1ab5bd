"""A snapshot lists folders and files, opens files, and reads for asyncio programs, as the catalog does."""

import asyncio
import os
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path

import pytest

import cafcat
from cafcat.errors import CafcatError, Conflict, InvalidInput, NotFound
from cafcat.model import Folder, Location
from tests.worlds.catalog_world import commit

LETTERS = ["a", "b", "-", ".", "0", "!", "\x01", "\x7f", "é", "€", "𝄞", "\U0010ffff", "a b"]
"""Some of them sort next to the slash, at the ends of all characters, or take several bytes."""


def some_files() -> dict[str, bytes]:
    """Return 400 files in folders up to four levels deep. Some names are those of a file and of a folder."""
    numbers = random.Random(3)
    paths = {
        "/".join("".join(numbers.choices(LETTERS, k=2)) for _ in range(numbers.randint(1, 4))) for _ in range(350)
    }
    folders = {path.rsplit("/", 1)[0] for path in paths if "/" in path}
    paths |= set(numbers.sample(sorted(folders), 50))
    return {path: path.encode() for path in sorted(paths) if not {".", ".."} & set(path.split("/"))}


FILES = some_files()
FOLDERS = {"", *(f"{path[:n]}/" for path in FILES for n, letter in enumerate(path) if letter == "/")}


@pytest.fixture
def taken(local: cafcat.Repository, tmp_path: Path) -> Iterator[cafcat.Snapshot]:
    commit(local, FILES)
    local.snapshot(tmp_path / "taken")
    with cafcat.Snapshot(tmp_path / "taken", home=tmp_path) as snapshot:
        yield snapshot


def check_listings(taken: cafcat.Snapshot, local: cafcat.Repository) -> None:
    catalog = local.session.catalog.files
    for folder in [*FOLDERS, "nothing/"]:
        assert list(taken.files.folder(folder)) == list(catalog.folder(folder)), folder
    for name in [*(folder.rstrip("/") for folder in FOLDERS), *list(FILES)[:20], "nothing", "", ".", "./a/"]:
        found = list(chain.from_iterable(taken.files.pages(name)))
        assert found == list(chain.from_iterable(catalog.pages(name))), name


def test_listings_equal_those_of_the_catalog(taken: cafcat.Snapshot, local: cafcat.Repository) -> None:
    assert sum(1 for folder in FOLDERS if folder[:-1] in FILES) > 10
    check_listings(taken, local)


def test_pages_follow_each_other(taken: cafcat.Snapshot) -> None:
    for limit in (1, 2, 7):
        for folder in sorted(FOLDERS)[:40]:
            entries: list[Location | Folder] = []
            while page := taken.files.folder_page(folder, after=entries[-1] if entries else None, limit=limit):
                assert len(page) <= limit
                entries += page
            assert entries == list(taken.files.folder(folder))
        found: list[Location] = []
        while rows := taken.files.location_page("", after=found[-1].path if found else None, limit=97 * limit):
            found += rows
        assert [location.path for location in found] == sorted(FILES, key=str.encode)


def test_listings_of_version_1(taken: cafcat.Snapshot, local: cafcat.Repository, tmp_path: Path) -> None:
    """The table of files has fewer columns in version 1."""
    with closing(sqlite3.connect(tmp_path / "taken")) as connection:
        connection.execute("ALTER TABLE files DROP COLUMN decoding")
        connection.execute("ALTER TABLE files DROP COLUMN content_bytes")
        connection.execute("PRAGMA user_version = 1")
        connection.execute("VACUUM")
    with cafcat.Snapshot(tmp_path / "taken", home=tmp_path) as snapshot:
        check_listings(snapshot, local)


def test_a_level_is_found_by_searches(taken: cafcat.Snapshot, tmp_path: Path) -> None:
    """A folder with one large folder inside is listed without reading the rows of that folder."""
    from cafcat.snapshots.lookup import _FOLDER_PAGE

    statement = _FOLDER_PAGE.format(upper_bound="AND file_path < ?4")
    with closing(sqlite3.connect(tmp_path / "taken")) as connection:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", ("a/", 9, 3, "a0"))]
    assert not [
        line
        for line in plan
        if line.startswith("SCAN") and line not in ("SCAN CONSTANT ROW", "SCAN walk", "SCAN e")
    ], plan


def test_open(taken: cafcat.Snapshot) -> None:
    path = next(iter(FILES))
    with taken.open(path) as file:
        assert file.read() == FILES[path]
        assert file.seek(1) == 1
        assert file.read(2) == FILES[path][1:3]
    with pytest.raises(NotFound) as raised:
        taken.open("later")
    assert raised.value.hint == f"the snapshot was made at {taken.info.made_at}"


def test_asyncio(taken: cafcat.Snapshot) -> None:
    async def read() -> tuple[list[bytes | BaseException], dict[str, bytes | CafcatError]]:
        paths = [*FILES, "nothing"]
        single = await asyncio.gather(*(taken.aread(path) for path in paths), return_exceptions=True)
        return single, {path: content async for path, content in taken.aread_many(paths)}

    for _ in range(2):
        single, many = asyncio.run(read())
        assert single[:-1] == list(FILES.values())
        assert {path: many[path] for path in FILES} == FILES
        for error in (single[-1], many["nothing"]):
            assert isinstance(error, NotFound)
            assert error.hint == f"the snapshot was made at {taken.info.made_at}"
        taken.close()  # the next read opens it again


@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_a_fork_after_asyncio(taken: cafcat.Snapshot, local: cafcat.Repository) -> None:
    """The threads of the parent, which read for asyncio, do not exist in the child."""
    path = next(iter(FILES))

    async def read() -> bool:
        results = await asyncio.gather(*(packed.aread(path) for packed in (taken, local) for _ in range(20)))
        return set(results) == {FILES[path]}

    assert asyncio.run(read())
    child = os.fork()
    if child == 0:
        os._exit(0 if asyncio.run(asyncio.wait_for(read(), 30)) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert asyncio.run(read())


def test_a_name_that_no_path_can_have(taken: cafcat.Snapshot) -> None:
    with pytest.raises(InvalidInput):
        list(taken.files.folder("\udcff/"))


def test_a_replaced_snapshot(taken: cafcat.Snapshot, local: cafcat.Repository, tmp_path: Path) -> None:
    taken.close()
    local.snapshot(tmp_path / "other")
    os.replace(tmp_path / "other", tmp_path / "taken")
    with pytest.raises(Conflict, match="replaced by another file"):
        list(taken.files.folder(""))
