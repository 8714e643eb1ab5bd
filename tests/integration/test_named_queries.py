"""`cafcat query`: each query runs, takes its parameters as text, and reads no whole table of files."""

import json
from pathlib import Path

import psycopg
import pytest

from cafcat.catalog.named_queries import NamedQuery, named_queries
from cafcat.errors import InvalidInput
from tests.docs.sql_page import PAGE, SECTIONS, cookbook, page_with
from tests.worlds.plans import BIG_TABLES
from tests.worlds.servers.services import Databases
from tests.worlds.size_verbs import prepared
from tests.worlds.size_world import SizeWorld

READS_ALL = "reads all files"


def test_the_page_has_all_queries() -> None:
    assert sorted(name for names in SECTIONS.values() for name in names) == sorted(named_queries())
    assert PAGE.read_text() == page_with(cookbook()), "run `python -m tests.docs.sql_page`"


@pytest.mark.parametrize("query", named_queries().values(), ids=lambda query: query.name)
def test_every_query_is_described(query: NamedQuery) -> None:
    assert query.question.endswith(("?", "first."))
    assert all(f":{parameter.name}" in query.sql for parameter in query.parameters)
    assert all(parameter.help.endswith(".") for parameter in query.parameters)
    assert "--" not in query.sql


def test_values_are_quoted() -> None:
    query = named_queries()["where-is"]
    assert "'it''s; DROP TABLE chunks'" in query.text(["it's; DROP TABLE chunks"])
    with pytest.raises(InvalidInput, match="takes PATH"):
        query.text([])
    with pytest.raises(InvalidInput, match="run must be a whole number"):
        named_queries()["files-of-run"].text(["7 OR true"])


@pytest.mark.parametrize(
    ("typed", "folder"),
    [("photos", "photos/"), ("./photos/", "photos/"), ("/photos", "photos/"), ("", ""), (".", "")],
)
def test_folders_need_no_slash_at_their_end(typed: str, folder: str) -> None:
    text = named_queries()["largest-files"].text([typed])
    assert f"file_path >= '{folder}' AND ('{folder}' = '' OR " in text


@pytest.mark.parametrize(("typed", "folder"), [("/var/log", "/var/log/"), ("app/", "app/"), ("", ""), (".", "")])
def test_folders_of_logs_keep_a_slash_at_their_begin(typed: str, folder: str) -> None:
    text = named_queries()["logs"].text([typed, "2026-11-21", "2026-11-22"])
    assert f"log_file >= '{folder}' AND ('{folder}' = '' OR " in text


def scans(plan: dict[str, object]) -> list[tuple[str, str]]:
    """Return the kind and the table of each scan of a plan."""
    found = [(str(plan["Node Type"]), str(plan["Relation Name"]))] if "Relation Name" in plan else []
    below = plan.get("Plans", [])
    assert isinstance(below, list)
    return found + [scan for child in below for scan in scans(child)]


@pytest.mark.parametrize("rows", [50_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_no_query_reads_all_files(databases: Databases, tmp_path: Path, rows: int) -> None:
    with databases.fresh(databases.template()) as url:
        world = SizeWorld(tmp_path, url)
        with world.repository() as repository:
            prepared(world, repository)
        world.grow(rows)
        world.switch("fresh")
        examples = {"path": world.paths("tree")[0], "folder": "tree/", "chunk": world.chunk_of("tree")}
        found = {}
        with psycopg.connect(url) as connection:
            for query in named_queries().values():
                text = query.text([examples.get(p.name, p.example) for p in query.parameters])
                [(plan,)] = connection.execute(f"EXPLAIN (FORMAT JSON) {text}".encode()).fetchall()
                read = {
                    table for kind, table in scans(plan[0]["Plan"]) if kind == "Seq Scan" and table in BIG_TABLES
                }
                found[query.name] = sorted(read)
    whole = {name for name, tables in found.items() if tables}
    assert whole == {query.name for query in named_queries().values() if READS_ALL in query.notes}, json.dumps(
        found
    )
