"""Shell patterns have the same meaning in the database as in Python."""

import fnmatch

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cafcat.reading.globs import regex_of_glob

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
