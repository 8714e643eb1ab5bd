"""A database is lost, and its store is not. The tests run every command from the first `ls` to the next ingest:
no file is packed twice, no file is lost, and every message names the next command."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from tests.e2e.conftest import TREE, Cafcat, Result, write_tree
from tests.worlds.servers.services import Databases

FILES = {**TREE, "tree/a.txt": b"newer\n"}
del FILES["tree/b.bin"]
UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
REMEDIES = (
    "if its catalog was lost, run `cafcat rebuild {store}`, with its other stores, too, "
    "or `cafcat restore --from {store}` to load a backup; "
    "to read its archives from this catalog, too, run `cafcat adopt`"
)


@pytest.fixture
def kept(databases: Databases) -> Iterator[str]:
    """A database with a copy of the catalog as it was, to compare with."""
    with databases.fresh(databases.template()) as url:
        yield url


def fill(cafcat: Cafcat, kept: str) -> str:
    """Two ingests, a replaced file, a removed one. Returns the URL of the store."""
    write_tree(cafcat.folder)
    cafcat("ingest", "tree")
    (cafcat.folder / "tree/a.txt").write_bytes(b"newer\n")
    cafcat("ingest", "tree")
    cafcat("rm", "tree/b.bin", "--yes")
    (cafcat.folder / "tree/b.bin").unlink()
    store = str(cafcat("sql", "-c", "SELECT url FROM stores", "--json").documents[0]["url"])
    cafcat("backup")
    Cafcat(cafcat.folder, kept, cafcat.extra)("restore", "--from", store)
    return store


def tell(cafcat: Cafcat, store: str) -> None:
    """Every verb that finds nothing names the remedies, with its usual exit code."""
    remedies = REMEDIES.format(store=store)
    database = r"\S+"
    lost = (
        rf"the catalog is empty, but the store {re.escape(store)} belongs to catalog {UUID} \(since {database}Z, "
    )
    for arguments, code in (
        (["ls"], 0),
        (["ls", "-R", "tree"], 4),
        (["find", "--name", "*.txt"], 0),
        (["stats"], 0),
        (["stat", "tree/a.txt"], 4),
        (["get", "tree/a.txt"], 4),
        (["get", "tree/a.txt", "tree/empty", "-o", "."], 3),
        (["cat", "tree/a.txt"], 4),
        (["locate", "tree/a.txt"], 4),
        (["extract", "tree", "-C", "out"], 4),
        (["extract", "-C", "out"], 0),
        (["export", "-o", "out.tar"], 0),
        (["snapshot", "-o", "out.cafs"], 0),
        (["verify", "--level", "data"], 0),
        (["copy", "--all", "--to", "./second"], 0),
    ):
        result = cafcat(*arguments, code=code)
        assert re.search(f"cafcat: warning: {lost}", result.err), result
        assert result.err.count(remedies) == 1, result
    checked = cafcat("db", "check", code=5)
    assert re.match(lost, checked.text)
    assert (checked.text.count(remedies), checked.err) == (1, "")
    [warning] = cafcat("ls", "--json").err.splitlines()
    assert remedies in warning


def refuse(cafcat: Cafcat, store: str) -> None:
    """Verbs that write chunks or backups refuse before they write."""
    remedies = REMEDIES.format(store=store) + "; to let two catalogs write there, use --join-store"
    for arguments in (["ingest", "tree"], ["ingest", "tree", "--dry-run"], ["backup", "--keep", "1"]):
        refused = cafcat(*arguments, code=1)
        assert f"the store {store} belongs to catalog " in refused.err
        assert refused.err.count(remedies) == 1


def chosen_command(result: Result) -> list[str]:
    """Return the first command that a message names, as a user would paste it."""
    found = re.search("`cafcat ([^`]+)`", result.err)
    assert found
    return found[1].split()


def mend_and_go_on(cafcat: Cafcat, kept: str) -> None:
    objects = cafcat("sql", "-c", "SELECT count(*) AS n FROM chunks", "--json").documents
    assert objects == [{"n": 0}]
    rebuilt = cafcat(*chosen_command(cafcat("ingest", "tree", code=1)))
    assert rebuilt.text.startswith("rebuilt 2 chunks: 12 files")
    assert rebuilt.err == ""
    same = cafcat("compare", kept)
    assert same.text.startswith("no difference: 2 of chunks, 12 of file_locations, 2 of retired_locations")
    assert cafcat("db", "check").text == "nothing is wrong\n"
    again = cafcat("ingest", "tree", "--json").documents[-1]["summary"]
    assert (again["files_added"], again["files_replaced"], again["files_failed"]) == (0, 0, 0)
    assert again["files_unchanged"] == len(FILES)
    (cafcat.folder / "tree/new").write_bytes(b"new")
    assert cafcat("ingest", "tree", "--json").documents[-1]["summary"]["files_added"] == 1
    for path, content in FILES.items():
        assert cafcat("cat", "--", path).out == content
    assert cafcat("verify", "--level", "data").code == 0
    assert cafcat("recover", "--json").documents[-1]["summary"]["unknown_objects"] == 0
    assert cafcat("backup").code == 0


def test_an_embedded_database_is_lost(tmp_path: Path, kept: str) -> None:
    """The folder of the database was deleted; the default store beside it was not."""
    cafcat = Cafcat(tmp_path, None, {"CAFCAT_STORE": ""})
    try:
        store = fill(cafcat, kept)
        assert store == (tmp_path / "home" / "chunks").as_uri()
        cafcat("db", "stop")
        shutil.rmtree(tmp_path / "home" / "postgres")
        tell(cafcat, store)
        refuse(cafcat, store)
        mend_and_go_on(cafcat, kept)
    finally:
        cafcat("db", "stop")


def test_a_given_database_is_dropped_and_made_again(cafcat: Cafcat, kept: str, databases: Databases) -> None:
    store = fill(cafcat, kept)
    assert cafcat.database_url
    name = urlsplit(cafcat.database_url).path.removeprefix("/")
    databases.drop(name)
    assert "does not exist" in cafcat("ls", code=10).err
    with psycopg.connect(databases.conninfo, autocommit=True) as connection:
        statement = sql.SQL("CREATE DATABASE {} OWNER {}")
        connection.execute(statement.format(sql.Identifier(name), sql.Identifier(databases.owner)))
    assert "the database has no cafcat schema; run `cafcat db init` with the same" in cafcat("ls", code=10).err
    cafcat("db", "init")
    tell(cafcat, store)
    refuse(cafcat, store)
    mend_and_go_on(cafcat, kept)


@pytest.mark.usefixtures("s3_environment")
def test_a_database_over_a_bucket_is_lost(
    cafcat: Cafcat, kept: str, databases: Databases, make_bucket: Callable[[], str]
) -> None:
    cafcat.extra["CAFCAT_STORE"] = f"s3://{make_bucket()}/chunks"
    store = fill(cafcat, kept)
    with databases.fresh(databases.template()) as url:
        cafcat.database_url = url
        result = cafcat("ls")
        assert REMEDIES.format(store=store) in result.err
        refuse(cafcat, store)
        mend_and_go_on(cafcat, kept)


def test_a_restore_is_the_other_way_back(cafcat: Cafcat, kept: str) -> None:
    """The next ingest finds everything unchanged."""
    store = fill(cafcat, kept)
    with psycopg.connect(str(cafcat.database_url)) as connection:
        connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    cafcat("db", "init")
    found = re.search(r"`cafcat (restore [^`]+)`", cafcat("ingest", "tree", code=1).err)
    assert found
    assert found[1] == f"restore --from {store}"
    cafcat(*found[1].split())
    assert cafcat("ingest", "tree", "--json").documents[-1]["summary"]["files_added"] == 0
    assert cafcat("compare", kept).code == 0


def test_two_catalogs_share_a_store_on_purpose(cafcat: Cafcat, kept: str) -> None:
    """Each catalog has its own files again after a rebuild."""
    store = fill_plain(cafcat, "one")
    second = Cafcat(cafcat.folder, kept)
    (cafcat.folder / "two").mkdir()
    (cafcat.folder / "two/file").write_bytes(b"two")
    second("ingest", "two", "--join-store")
    second("ingest", "two")
    assert second("ls", "-R").lines == ["two/file"]
    for other in (cafcat, second):
        (identity,) = other("sql", "-c", "SELECT uuid::text FROM catalog_identity", "--json").documents
        listed = other("ls", "-R").lines
        with psycopg.connect(str(other.database_url)) as connection:
            connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        other("db", "init")
        asked = other("rebuild", store, code=2)
        assert "2 catalogs wrote to these stores: " in asked.err
        assert f"{identity['uuid']} (since 20" in asked.err
        assert f"; choose one: cafcat rebuild {store} --catalog UUID" in asked.err
        summary = summary_of(other("rebuild", store, "--catalog", identity["uuid"], "--json"))
        assert (summary["catalog"], summary["unclaimed"], summary["damages"]) == (identity["uuid"], [], [])
        assert other("ls", "-R").lines == listed
        assert summary_of(other("ingest", listed[0].partition("/")[0], "--json"))["files_added"] == 0


def fill_plain(cafcat: Cafcat, name: str) -> str:
    (cafcat.folder / name).mkdir()
    (cafcat.folder / name / "file").write_bytes(b"one")
    cafcat("ingest", name)
    return str(cafcat("sql", "-c", "SELECT url FROM stores", "--json").documents[0]["url"])


def summary_of(result: Result) -> dict[str, Any]:
    return dict(result.documents[-1]["summary"])


def test_another_database_than_the_embedded_one_is_no_loss(tmp_path: Path, kept: str) -> None:
    """The user set database_url; the catalog of the store is in the embedded database of the same home."""
    embedded = Cafcat(tmp_path, None, {"CAFCAT_STORE": ""})
    try:
        fill_plain(embedded, "one")
        refused = Cafcat(tmp_path, kept, {"CAFCAT_STORE": ""})("ingest", "one", code=1)
        assert "this is the catalog of the embedded database" in refused.err
        assert "docs/tasks/moving.md" in refused.err
        assert "rebuild" not in refused.err
    finally:
        embedded("db", "stop")
