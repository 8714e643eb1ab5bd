"""Permissions: other users cannot read files in the home; elsewhere the umask decides."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Cafcat, write_tree

OTHERS = 0o077


@pytest.fixture(params=[0o000, 0o022])
def mask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def own(cafcat: Cafcat) -> Cafcat:
    """The command with the default store."""
    cafcat.extra["CAFCAT_STORE"] = ""
    write_tree(cafcat.folder)
    return cafcat


@pytest.fixture
def usual(own: Cafcat) -> Cafcat:
    """The command with the default home, too."""
    own.extra |= {"CAFCAT_HOME": "", "XDG_DATA_HOME": str(own.folder / "data"), "HOME": str(own.folder)}
    return own


def modes(folder: Path) -> dict[str, int]:
    """Return the modes of a folder and of everything in it."""
    return {str(path.relative_to(folder)): path.stat().st_mode & 0o777 for path in [folder, *folder.rglob("*")]}


def open_to_others(folder: Path) -> dict[str, int]:
    return {name: mode for name, mode in modes(folder).items() if mode & OTHERS}


@pytest.mark.skipif(sys.platform != "linux", reason="where the default home is, is another matter elsewhere")
def test_all_in_the_default_home_is_closed_to_others(usual: Cafcat, mask: int) -> None:
    """Chunks, journal and backups are closed, and files that verbs write for the user in it."""
    home = usual.folder / "data/cafcat"
    usual("ingest", "-q", "tree")
    usual("backup", "-q")
    for command in (["export", "-o", home / "a.caf"], ["snapshot", "-o", home / "a.cafs"]):
        usual(*command, "-q")
    usual("convert", home / "a.caf", home / "a.cio", "-q")
    usual("get", "tree/a.txt", "-o", home / "a.txt")
    usual("get", "tree/b.bin", "tree/empty", "-o", home)
    usual("extract", "-q", "-C", home / "out")
    assert open_to_others(home) == {}
    expected = {
        "chunks",
        "chunks/journal",
        "chunks/backups",
        "a.caf",
        "a.cafs",
        "a.cio",
        "a.txt",
        "b.bin",
        "out/tree/a.txt",
    }
    assert expected <= modes(home).keys()


def test_given_home_is_closed_to_others(own: Cafcat, mask: int) -> None:
    own("ingest", "-q", "tree")
    own("backup", "-q")
    assert open_to_others(own.folder / "home") == {}
    assert {"chunks", "chunks/journal", "chunks/backups"} <= modes(own.folder / "home").keys()


def test_given_store_keeps_the_umask(cafcat: Cafcat, mask: int) -> None:
    write_tree(cafcat.folder)
    cafcat("ingest", "-q", "tree")
    folders = {0o777 & ~mask}
    assert {mode for name, mode in modes(cafcat.folder / "store").items() if "." not in name} >= folders
    files = [path for path in (cafcat.folder / "store").rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o666 & ~mask}


def test_extracted_files_obey_the_umask(own: Cafcat, mask: int) -> None:
    (own.folder / "tree/a.txt").chmod(0o600)
    own("ingest", "-q", "tree")
    own("extract", "-q", "-C", "out")
    own("get", "tree/a.txt", "-o", "a.txt")
    own("get", "tree/a.txt", "tree/b.bin", "-o", "out")
    assert {mode & mask for mode in modes(own.folder / "out").values()} == {0}
    assert (own.folder / "a.txt").stat().st_mode & 0o777 == 0o666 & ~mask


def test_open_home_of_an_earlier_version_is_closed(own: Cafcat) -> None:
    """The next command that reads or writes in the home closes it."""
    own("ingest", "-q", "tree")
    home = own.folder / "home"
    for command in (["get", "tree/a.txt", "-o", "a.txt"], ["ingest", "-q", "tree"]):
        for folder in (home, home / "chunks"):
            folder.chmod(0o755)
        (own.folder / "tree/new.txt").write_bytes(b"new")
        own(*command)
        assert [path.stat().st_mode & 0o777 for path in (home, home / "chunks")] == [0o700, 0o700]


def test_given_home_with_other_files_keeps_its_mode(own: Cafcat) -> None:
    """Such a folder may be /srv, or a user's home. The chunks in it are closed nevertheless."""
    home = own.folder / "home"
    home.mkdir(mode=0o755)
    (home / "of-somebody-else").touch()
    own("ingest", "-q", "tree")
    assert home.stat().st_mode & 0o777 == 0o755
    assert open_to_others(home / "chunks") == {}
