"""Every verb by a role that `db grant-reader` made a reader: reading verbs work, and no verb changes anything."""

import json
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cafcat.catalog.tables import metadata
from tests.e2e.conftest import Cafcat
from tests.e2e.test_every_verb import CASES, IN_AN_EMPTY_CATALOG, WITHOUT_A_DATABASE, clp_program, filled

__all__ = ["clp_program", "filled"]

READING = {
    "cat",
    "chunks ls",
    "chunks show",
    "compare",
    "completion",
    "db check",
    "db current",
    "db url",
    "du",
    "export",
    "extract",
    "find",
    "get",
    "help",
    "inspect",
    "keys list",
    "limits list",
    "locate",
    "ls",
    "query",
    "runs",
    "runs diff",
    "runs show",
    "runs watch",
    "search",
    "snapshot",
    "sql",
    "stat",
    "stats",
    "store ls",
    "units",
    "url",
}
WITHOUT_WORK = {"db init", "recover", "repair", "store check"}
"""Verbs that find nothing to change in this catalog, and therefore succeed."""
CHANGING = set(CASES) - READING - WITHOUT_A_DATABASE - IN_AN_EMPTY_CATALOG


@pytest.fixture
def reader(filled: Cafcat, postgres_server: str) -> Iterator[Cafcat]:
    """The command as a reader of the catalog."""
    role, password = f"reader_{uuid4().hex}", uuid4().hex
    assert filled.database_url
    name = sql.Identifier(role)
    with psycopg.connect(postgres_server, autocommit=True) as server:
        server.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(name, sql.Literal(password)))
    filled("db", "grant-reader", role)
    url = re.sub("user=[^&]*&password=[^&]*", f"user={role}&password={password}", filled.database_url)
    yield Cafcat(filled.folder, url)
    of_catalog = make_conninfo(postgres_server, dbname=conninfo_to_dict(filled.database_url)["dbname"])
    with psycopg.connect(of_catalog, autocommit=True) as server:
        server.execute(sql.SQL("DROP OWNED BY {}").format(name))
        server.execute(sql.SQL("DROP ROLE {}").format(name))


def rows(cafcat: Cafcat) -> dict[str, str]:
    """Return a checksum of all rows by table."""
    assert cafcat.database_url
    with psycopg.connect(cafcat.database_url) as connection:
        found = {}
        for table in metadata.tables:
            query = f"SELECT md5(coalesce(string_agg(t::text, '|' ORDER BY t::text), '')) FROM {table} AS t"
            [(found[table],)] = connection.execute(query.encode()).fetchall()
    return found


def arguments(filled: Cafcat, verb: str) -> list[str]:
    """Run the commands before a verb as the owner, and return the words of the verb."""
    for command in CASES[verb].before:
        filled(*shlex.split(command))
    [chunk, *_] = filled("chunks", "ls", "--json").documents
    keys = filled("keys", "list", "--json").documents
    key = keys[0]["access_key_id"] if keys else ""
    url = shlex.quote(str(filled.database_url))
    return shlex.split(CASES[verb].command.format(chunk=chunk["uuid"], url=url, key=key))


@pytest.mark.parametrize("verb", sorted(READING))
def test_a_reading_verb_works(filled: Cafcat, reader: Cafcat, verb: str) -> None:
    words = arguments(filled, verb)
    before = rows(filled)
    assert CASES[verb].shows.partition("{")[0] in reader(*words).text
    assert rows(filled) == before


@pytest.mark.parametrize("verb", sorted(CHANGING))
def test_a_changing_verb_changes_nothing(filled: Cafcat, reader: Cafcat, verb: str) -> None:
    words = arguments(filled, verb)
    before, objects = rows(filled), files_in(filled.folder / "store")
    result = reader.unchecked(*words)
    assert "Traceback" not in result.err
    assert (result.code == 0) == (verb in WITHOUT_WORK), result
    if result.code:
        assert result.code == 12
        assert re.search("permission denied|refused permission|only the owner|cannot", result.err), result
    assert rows(filled) == before
    assert files_in(filled.folder / "store") == objects


@pytest.mark.parametrize("options", ["", "-c default_transaction_read_only=on"])
@pytest.mark.parametrize("words", ["copy --all --to ./second", "prune --grace 0 --yes"])
def test_a_role_that_can_only_read_is_an_error_of_credentials(
    filled: Cafcat, reader: Cafcat, options: str, words: str
) -> None:
    """The server names another reason if the role begins transactions that can only read."""
    filled("copy", "--all", "--to", "./second", "-q")
    filled("rm", "-r", "tree", "--yes")
    (filled.folder / "new").write_bytes(b"new")
    filled("ingest", "new", "-q")
    reader.extra["PGOPTIONS"] = options
    before, objects = rows(filled), files_in(filled.folder / "store")
    result = reader.unchecked(*words.split(), "--json")
    assert result.code == 12, result
    assert json.loads(result.err.splitlines()[-1])["error"]["kind"] == "credentials"
    assert rows(filled) == before
    assert files_in(filled.folder / "store") == objects


def files_in(folder: Path) -> dict[str, bytes]:
    return {
        os.path.join(place, name): Path(place, name).read_bytes()
        for place, _, names in os.walk(folder)
        for name in names
    }


def test_the_doctor_accepts_a_role_that_may_only_read(reader: Cafcat) -> None:
    checks = reader.unchecked("doctor", "--json").document["checks"]
    limits = [(found["level"], found["found"]) for found in checks if found["check"] == "limits"]
    assert ("ok", "this role may only read the catalog") in limits
    assert not any("default_transaction_read_only" in text for _, text in limits)
