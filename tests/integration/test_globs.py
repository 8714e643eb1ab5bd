"""Shell patterns have the same meaning in the database as in Python."""

import fnmatch
import itertools
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cafcat
from cafcat.errors import CafcatError, InvalidInput, NotFound
from cafcat.model import Location
from cafcat.reading.globs import literal_prefix, regex_of_glob, regex_of_path_glob
from tests.worlds.catalog_world import commit

ALPHABET = "abz059-]^!.*?\\+(){}|$ \n_é日"


@pytest.fixture(scope="module")
def connection(postgres_server: str) -> psycopg.Connection:
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        yield connection


def matches(connection: psycopg.Connection, pattern: str, path: str) -> bool:
    row = connection.execute('SELECT %s::text COLLATE "C" ~ %s', [path, regex_of_glob(pattern)]).fetchone()
    assert row
    return bool(row[0])


PATTERNS = st.text(ALPHABET.replace("\\", "") + "[[[]]", max_size=8)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(pattern=PATTERNS, name=st.text(ALPHABET, min_size=1, max_size=5))
def test_a_pattern_matches_the_last_part_as_fnmatch_does(
    connection: psycopg.Connection, pattern: str, name: str
) -> None:
    # fnmatch supports only [!…]; in sh and here [^…] has the same meaning.
    expected = fnmatch.fnmatchcase(name, pattern.replace("[^", "[!"))
    assert matches(connection, pattern, f"folder/{name}") == expected
    assert matches(connection, pattern, name) == expected


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*", "a/b", True),
        ("a*", "a/b", False),
        ("x?y", "x/y", False),
        ("x[+-9]y", "x/y", False),
        ("[!a]b", "a/b", False),
        ("[!]a]", "b", True),
        ("[!]a]", "ba]", False),
        ("[[:alpha:]]", "a]", True),
        ("[z-a]", "m", False),
        (r"\*", "*", True),
        (r"\*", "a", False),
        ("[", "[", True),
        ("", "a", False),
    ],
)
def test_patterns(connection: psycopg.Connection, pattern: str, path: str, expected: bool) -> None:
    assert matches(connection, pattern, path) == expected


def matches_path(connection: psycopg.Connection, pattern: str, path: str, *, below: bool) -> bool:
    regex = regex_of_path_glob(pattern, below=below)
    row = connection.execute('SELECT %s::text COLLATE "C" ~ %s', [path, regex]).fetchone()
    assert row
    return bool(row[0])


def parts_match(pattern: list[str], parts: list[str]) -> bool:
    """Compare part by part; "**" stands for any number of parts, and at the end for at least one."""
    if not pattern or not parts:
        return pattern == parts
    if pattern == ["**"]:
        return True
    if pattern[0] == "**":
        return any(parts_match(pattern[1:], parts[start:]) for start in range(len(parts)))
    return fnmatch.fnmatchcase(parts[0], pattern[0]) and parts_match(pattern[1:], parts[1:])


PARTS = st.sampled_from(["**", "*", "a", "b*", "?", "[ab]", "a.b"])
NAMES = st.sampled_from(["a", "b", "ab", "a.b", "bc", "\n"])


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(pattern=st.lists(PARTS, min_size=1, max_size=4), parts=st.lists(NAMES, min_size=1, max_size=5))
def test_a_pattern_of_a_path(connection: psycopg.Connection, pattern: list[str], parts: list[str]) -> None:
    text, path = "/".join(pattern), "/".join(parts)
    expected = parts_match(pattern, parts)
    assert matches_path(connection, text, path, below=False) == expected
    assert not expected or path.startswith(literal_prefix(text))
    above = any(parts_match(pattern, parts[:end]) for end in range(1, len(parts) + 1))
    assert matches_path(connection, text, path, below=True) == above
    folders = any(parts_match(pattern, parts[:end]) for end in range(1, len(parts)))
    assert matches_path(connection, f"{text}/", path, below=True) == folders


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("a/**", "a", False),
        ("a/**", "a/b/c", True),
        ("a**c", "a/c", False),
        ("a**c", "abc", True),
        (r"a\*/b", "a*/b", True),
        (r"a\*/b", "ax/b", False),
        ("**/", "a/", True),
        ("a.c", "abc", False),
        ("**/[!a]", "x/b", True),
    ],
)
def test_patterns_of_paths(connection: psycopg.Connection, pattern: str, path: str, expected: bool) -> None:
    assert matches_path(connection, pattern, path, below=False) == expected


FILES = {
    name: name.encode() for name in ("p/a.jpg", "p/b.png", "p/q/c.jpg", "p/[x]", "q/a.jpg", "\U0010ffff/z.jpg")
}


def test_files_that_match(local: cafcat.Repository) -> None:
    commit(local, FILES)
    assert [location.path for location in local.glob("**/*.jpg")] == [
        "p/a.jpg",
        "p/q/c.jpg",
        "q/a.jpg",
        "\U0010ffff/z.jpg",
    ]
    assert [location.path for location in local.glob("./p/*")] == ["p/[x]", "p/a.jpg", "p/b.png"]
    assert list(local.expand(["q/**", "none", "p/[x]", "p/*.none", "*/b.*"])) == [
        "q/a.jpg",
        "none",
        "p/[x]",
        "p/*.none",
        "p/b.png",
    ]
    commit(local, {"s/[x]": b"name", "s/x": b"matched"})
    assert list(local.expand(["s/[x]", "s/[w-x]", "s/[y]"])) == ["s/[x]", "s/x", "s/[y]"]
    with pytest.raises(InvalidInput, match="must be a list"):
        local.expand("q/**")


def test_files_are_expanded_page_by_page(local: cafcat.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cafcat.catalog.files.lookup.PATHS", 3)
    names = [f"f/{number:02}.{suffix}" for number, suffix in itertools.product(range(10), ("a", "b"))]
    commit(local, dict.fromkeys(names, b""))
    assert list(local.expand(["f/*.b"])) == [name for name in names if name.endswith("b")]


def test_many_files_into_a_folder(local: cafcat.Repository, tmp_path: Path) -> None:
    commit(local, FILES)
    with pytest.raises(InvalidInput, match=r"'p/a.jpg' and 'q/a.jpg' have the same base name"):
        list(local.get_into(FILES, tmp_path / "flat"))
    assert not (tmp_path / "flat").exists()
    outcomes = dict(local.get_into(["p/a.jpg", "p/a.jpg", "none", "x\0", "p/b.png"], tmp_path / "flat", 0, 3))
    errors = {path: type(found) for path, found in outcomes.items() if isinstance(found, CafcatError)}
    assert errors == {"none": NotFound, "x\0": InvalidInput}
    assert {path.name: path.read_bytes() for path in (tmp_path / "flat").iterdir()} == {
        "a.jpg": b"p/a",
        "b.png": b"p/b",
    }
    found = list(local.get_into(local.expand(["**"]), tmp_path / "tree", parents=True))
    assert all(isinstance(location, Location) for _, location in found)
    assert {path: (tmp_path / "tree" / path).read_bytes() for path, _ in found} == FILES


def test_no_file_is_written_outside_the_folder(local: cafcat.Repository, tmp_path: Path) -> None:
    commit(local, {"../up": b"x", "/abs": b"x", "a/../../b": b"x", "good": b"x"})
    found = dict(local.get_into(["../up", "/abs", "a/../../b", "good"], tmp_path / "in", parents=True))
    assert {path for path, error in found.items() if isinstance(error, InvalidInput)} == {
        "../up",
        "/abs",
        "a/../../b",
    }
    assert {path.name for path in tmp_path.iterdir()} - {"store", "home"} == {"in"}
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["good"]
