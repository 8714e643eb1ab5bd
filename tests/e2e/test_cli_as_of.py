"""`--as-of TIME` of get, cat, extract, ls and find."""

from pathlib import Path

import pytest

from tests.e2e.conftest import Cafcat

TIME = "SELECT clock_timestamp() AS now"


@pytest.fixture
def changed(cafcat: Cafcat) -> tuple[Cafcat, str]:
    """A catalog after changes, and a time before them. Now there are notes/a and notes/new."""
    notes = cafcat.folder / "notes"
    notes.mkdir()
    for name, content in {"a": "first", "b": "second"}.items():
        (notes / name).write_text(content)
    cafcat("ingest", "notes", "-q")
    time = str(cafcat("sql", "-c", TIME, "--json").document["now"])
    (notes / "a").write_text("changed")
    (notes / "new").write_text("new")
    cafcat("ingest", "notes", "-q")
    cafcat("rm", "notes/b", "--yes", "-q")
    return cafcat, time


def files_below(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_files_of_an_earlier_time(changed: tuple[Cafcat, str]) -> None:
    cafcat, time = changed
    assert cafcat("cat", "notes/a", "--as-of", time).text == "first"
    assert cafcat("cat", "notes/*", "--as-of", time).text == "firstsecond"
    cafcat("get", "notes/a", "notes/b", "--parents", "-o", "got", "--as-of", time)
    cafcat("extract", "notes", "-C", "extracted", "--as-of", time)
    assert files_below(cafcat.folder / "got") == files_below(cafcat.folder / "extracted")
    assert files_below(cafcat.folder / "got") == {"notes/a": "first", "notes/b": "second"}
    cafcat("get", "notes/a", "-o", "one", "--as-of", "0s")
    assert (cafcat.folder / "one").read_text() == "changed"
    assert cafcat("extract", "notes", "-C", "x", "--explain", "--json", "--as-of", time).document["files"] == 2


def test_what_the_time_does_not_have(changed: tuple[Cafcat, str]) -> None:
    cafcat, time = changed
    error = cafcat("get", "notes/new", "--as-of", time, "--json", code=4).error
    assert error["message"].startswith("the catalog has no version of the file from 20")
    assert error["hint"] == "`cafcat query history PATH` lists the versions"
    assert "has no version" in cafcat("cat", "notes/a", "notes/new", "--as-of", time, code=3).err
    assert (
        "no file or folder of this name from 20"
        in cafcat("extract", "notes/new", "-C", "x", "--as-of", time, code=4).err
    )
    assert "has no versions of files from 7d" in cafcat("extract", "-C", "x", "--as-of", "7d").err
    assert "not a date: 'soon'" in cafcat("cat", "notes/a", "--as-of", "soon", code=2).err
    for words in (["get", "a", "--at", "1"], ["extract", "-C", "x", "--snapshot", "1"]):
        assert "use --as-of TIME" in cafcat(*words, code=2).err
    for option in (["--cluster", "local://1"], []):
        words = ["extract", "-C", "x"] if option else ["get", "--files-from", "-", "-o", "x.tar"]
        assert "--as-of cannot be" in cafcat(*words, *option, "--as-of", "1d", code=2).err


def test_listings_of_an_earlier_time(changed: tuple[Cafcat, str]) -> None:
    cafcat, time = changed
    assert cafcat("ls", "notes").text == "notes/a\nnotes/new\n"
    for words in (["ls", "notes"], ["ls", "-R"], ["find"], ["find", "notes/", "--max-size", "6"]):
        assert cafcat(*words, "--as-of", time).text == "notes/a\nnotes/b\n", words
    assert cafcat("ls", "--as-of", time).text == "notes/\n"
    assert cafcat("find", "--max-size", "5", "--as-of", time).text == "notes/a\n"
    assert cafcat("find", "--name", "b*", "-0", "--as-of", time).text == "notes/b\0"
    sizes = [line.split()[0] for line in cafcat("ls", "-l", "notes", "--as-of", time).text.splitlines()]
    assert sizes == ["5", "6"]
    assert cafcat("ls", "-l", "--as-of", time).text.split() == ["-", "-", "notes/"]
    document = cafcat("find", "notes/b", "--as-of", time, "--json").document
    assert (document["path"], document["size_bytes"]) == ("notes/b", 6)


def test_a_listing_names_what_the_time_does_not_have(changed: tuple[Cafcat, str]) -> None:
    cafcat, time = changed
    for verb in ("ls", "find"):
        error = cafcat(verb, "notes/new", "--as-of", time, "--json", code=4).error
        assert "no file or folder of this name from 20" in error["message"], verb
        assert "has no files from that time" in cafcat(verb, "--as-of", "7d").err, verb
        assert cafcat(verb, "notes", "--as-of", time, "-q").err == ""
    assert cafcat("find", "notes", "--name", "x", "--as-of", time).text == ""
    cafcat("prune", "--grace", "0s", "--yes", "-q")
    assert cafcat("ls", "--as-of", time).err == (
        "cafcat: warning: files of that time are left out, because `prune` deleted them: notes/a, for one\n"
    )
    assert "notes/b, for one" in cafcat("find", "--name", "b", "--as-of", time).err
    assert cafcat("find", "--name", "c", "--as-of", time).err == ""
    assert "its versions are gone" in cafcat("ls", "notes/b", "--as-of", time, code=4).err
