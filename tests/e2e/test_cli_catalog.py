"""chunks, runs, stats, sql, db."""

import os
from pathlib import Path

import psycopg
import pytest

from tests.e2e.conftest import TREE, Cafcat


def test_chunks(filled: Cafcat) -> None:
    chunk = filled("chunks", "ls", "--json").document
    assert chunk["state"] == "committed"
    assert (chunk["file_count"], chunk["live_file_count"]) == (len(TREE), len(TREE))
    assert filled("chunks", "ls", "--state", "retired").out == b""
    assert filled("chunks", "ls").lines[0].startswith(chunk["uuid"])
    assert filled("chunks", "show", chunk["uuid"], "--json").document == chunk | {"check": None, "copies": []}
    text = filled("chunks", "show", chunk["uuid"][:8], "--files").text
    assert all(path in text for path in TREE)
    assert all(str(value) in text for value in chunk.values() if value is not None)
    documents = filled("chunks", "show", chunk["uuid"], "--files", "--json").documents
    assert {document["path"] for document in documents[1:]} == set(TREE)
    filled("chunks", "show", "00000000-0000-0000-0000-000000000000", code=4)
    filled("chunks", "show", "xyz", code=2)


def test_runs_and_stats(filled: Cafcat) -> None:
    run = filled("runs", "--json", "--limit", "5").document
    assert (run["state"], run["sources"], run["files_added"]) == ("finished", ["tree"], len(TREE))
    assert f"+{len(TREE)} files" in filled("runs").text
    stats = filled("stats", "--json").document
    assert stats["files"] == len(TREE)
    assert stats["bytes"] == sum(map(len, TREE.values()))
    assert stats["chunks"]["committed"] == 1
    assert "1 committed" in filled("stats").text


def test_runs_show_the_prefix_of_an_ingest(cafcat: Cafcat) -> None:
    (cafcat.folder / "a").write_bytes(b"a")
    cafcat("ingest", "a", "-q")
    cafcat("ingest", "a", "--prefix", "k", "-q")
    newest, oldest = cafcat("runs").lines
    assert newest.endswith(" 1 chunk  a, prefix k")
    assert oldest.endswith(" 1 chunk  a")
    assert cafcat("runs", "show", "2").lines == [newest]
    assert [run["prefix"] for run in cafcat("runs", "--json").documents] == ["k", ""]
    assert cafcat("runs", "show", "2", "--json").document["prefix"] == "k"


def test_a_failed_run_keeps_the_message_of_its_error(cafcat: Cafcat) -> None:
    (cafcat.folder / "tree").mkdir()
    (cafcat.folder / "tree" / "a").touch()
    cafcat("ingest", "tree", "-q")
    (cafcat.folder / "tree" / "a").unlink()
    message = cafcat("ingest", "tree", "--delete", "--json", "-q", code=9).error["message"]
    row, why = cafcat("runs", "show", "2").lines
    assert "  failed  " in row
    assert why.startswith(f"error: {message}; check the source")
    shown = cafcat("runs", "show", "2", "--json").document["error"]
    assert why == f"error: {shown}"
    query = "SELECT detail FROM events WHERE kind = 'run_failed' AND run_id = 2"
    assert cafcat("sql", "-c", query, "--json").document["detail"] == shown
    assert [run["error"] for run in cafcat("runs", "--json").documents] == [shown, None]
    assert len(cafcat("runs", "show", "1").lines) == 1


def test_runs_and_units_of_an_empty_catalog_print_a_note(cafcat: Cafcat) -> None:
    assert cafcat("runs").err == "cafcat: there are no runs; `cafcat ingest FOLDER` packs a folder\n"
    hint = "`cafcat ingest --format clp-s` makes one"
    assert cafcat("units").err == f"cafcat: there are no archives of logs; {hint}\n"
    for verb in ("runs", "units"):
        for flag in ("--json", "--quiet"):
            silent = cafcat(verb, flag)
            assert (silent.out, silent.err) == (b"", "")


def test_runs_that_do_not_exist_or_are_in_the_wrong_order(cafcat: Cafcat) -> None:
    (cafcat.folder / "a").write_bytes(b"a")
    cafcat("ingest", "a", "-q")
    (cafcat.folder / "b").write_bytes(b"b")
    os.utime(cafcat.folder / "a", ns=(1, 1))
    assert "replaced 1" in cafcat("ingest", "a", "b").text
    assert cafcat("runs", "diff", "1", "2").lines == ["+ b"]
    assert cafcat("query", "changes", "1", "2", "--json").document["file_path"] == "b"
    wrong = "run 1 is not the later one: run 2 ended later; name the earlier run first: "
    for verb in (["runs", "diff"], ["query", "changes"]):
        assert cafcat(*verb, "2", "1", code=2).err == f"cafcat: {wrong}`cafcat {' '.join(verb)} 1 2`\n"
        assert cafcat(*verb, "2", "2", "--json").documents == []
        assert "there is no run 0;" in cafcat(*verb, "0", "1", code=4).err
    for name in ("ended-by-run", "failed-files", "files-of-run", "shards"):
        assert "there is no run 77;" in cafcat("query", name, "77", code=4).err
        assert "run must be a whole number" in cafcat("query", name, "x", code=2).err
    assert "takes FIRST LAST" in cafcat("query", "changes", "1", code=2).err
    for name in ("history", "where-is"):
        assert cafcat("query", name, "b", "--json").documents[0]["size_bytes"] == 1
        assert "the catalog has no such file" in cafcat("query", name, "nothing", code=4).err
    assert cafcat("query", "same-content", "b", "--json").documents == []
    for name in ("folder-size", "largest-files", "etags"):
        assert "the catalog has no such file or folder" in cafcat("query", name, "nothing", code=4).err
        refused = "this is a file, not a folder (path 'b'); `cafcat stat b` shows the file\n"
        assert cafcat("query", name, "b", code=4).err == f"cafcat: {refused}"
    assert cafcat("query", "folder-size", ".", "--json").documents[0]["files"] == 2
    for name in ("nothing", "./b"):
        assert "the catalog has no such file" in cafcat("query", "same-content", name, code=4).err


def test_a_query_refuses_a_number_of_days_that_is_out_of_range(cafcat: Cafcat) -> None:
    for days in ("-1", "36501", "2147483647", "99999999999", "x"):
        refused = f"days must be a whole number from 0 to 36,500, not '{days}'"
        assert cafcat("query", "not-verified-for", "--", days, code=2).err == f"cafcat: {refused}\n"
    for days in ("0", "36500"):
        assert cafcat("query", "not-verified-for", days, "--json").documents == []


def test_a_query_for_a_file_names_the_verbs_for_a_folder(cafcat: Cafcat) -> None:
    (cafcat.folder / "tree").mkdir()
    (cafcat.folder / "tree" / "a").write_bytes(b"a")
    cafcat("ingest", "tree", "-q")
    for verb in (["query", "where-is"], ["query", "history"], ["stat"]):
        assert "this is a folder of the catalog, not a file" in cafcat(*verb, "tree", code=4).err


def test_times_of_a_query_are_written_as_those_of_find(cafcat: Cafcat) -> None:
    assert cafcat("query", "logs", ".", "7d", "1d", "--json").documents == []
    text = cafcat("query", "logs", ".", "2026-11-21T10:00:00+02:00", "2026-11-22", "--sql").text
    assert "end_at >= timestamptz '2026-11-21 08:00:00+00:00'" in text
    error = cafcat("query", "logs", ".", "x", "1d", code=2).err
    assert cafcat("find", "--newer", "x", code=2).err == error.replace("cafcat: ", "cafcat: --newer: ")
    refused = "the query begins after it ends: its first time is later than its last time"
    assert refused in cafcat("query", "logs", ".", "2026-11-22", "2026-11-21", code=2).err


def test_a_word_that_names_no_store_is_not_called_a_store(cafcat: Cafcat) -> None:
    cafcat("db", "init", "-q")
    for verb in (["verify", "--store"], ["prune", "--store"], ["recover", "--store"], ["query", "copies-in"]):
        assert cafcat(*verb, "nosuch", code=4).err == (
            "cafcat: no store and no folder is called nosuch; `cafcat store ls` lists the stores\n"
        )
        assert "no chunk in the store file://" in cafcat(*verb, "./nosuch", code=4).err


def test_sql_of_a_query_takes_the_arguments_of_the_query(cafcat: Cafcat) -> None:
    (cafcat.folder / "a").write_bytes(b"a")
    cafcat("ingest", "a", "-q")
    cafcat("store", "add", "disk-1", "store")
    [chunk] = cafcat("chunks", "ls", "--json").documents
    for name, argument, whole in (
        ("files-of-chunk", chunk["uuid"][:8], chunk["uuid"]),
        ("lost-with", chunk["uuid"], chunk["uuid"]),
        ("lost-with-store", "disk-1", chunk["store"]),
    ):
        text = cafcat("query", name, argument, "--sql").text
        assert f"'{whole}'" in text
        assert cafcat("sql", "-c", text, "--json").documents == cafcat("query", name, argument, "--json").documents
    assert "no such chunk" in cafcat("query", "lost-with", "0" * 8, "--sql", code=4).err
    assert "takes CHUNK" in cafcat("query", "lost-with", chunk["uuid"], "x", "--sql", code=2).err


def test_sql_of_a_query_needs_no_database_for_complete_values(cafcat: Cafcat) -> None:
    unreachable = Cafcat(cafcat.folder, "postgresql://127.0.0.1:1/none")
    for name, argument in (
        ("files-of-chunk", "00000000-0000-0000-0000-000000000000"),
        ("lost-with-store", "file:///mnt/chunks"),
        ("files-of-run", "7"),
        ("where-is", "photos/cat.jpg"),
    ):
        assert argument in unreachable("query", name, argument, "--sql").text


def test_an_unknown_query_names_queries_that_look_alike(cafcat: Cafcat) -> None:
    near = "there is no query 'histori'; did you mean 'history'? `cafcat query` lists the queries"
    assert cafcat("query", "histori", "x", code=4).err == f"cafcat: {near}\n"
    assert "did you mean 'largest-files', 'largest-folders'?" in cafcat("query", "largest", code=4).err
    assert "did you mean 'history'?" in cafcat("query", "hist", code=4).err
    assert "did you mean 'largest-files', 'largest-folders'?" in cafcat("query", "largst", code=4).err
    for name in ("zzz", "nope", ""):
        assert cafcat("query", name, "--json", code=4).error["hint"] == "`cafcat query` lists the queries"


def test_a_query_that_ends_at_its_limit(cafcat: Cafcat) -> None:
    for n in range(20):
        cafcat.folder.joinpath(f"{n:02}").write_bytes(b"x")
    cafcat("ingest", *(f"{n:02}" for n in range(19)), "-q")
    assert not cafcat("query", "largest-files", "").err
    cafcat("ingest", "19", "-q")
    expected = "the query ends after 20 rows; `cafcat query largest-files '' --sql` prints it, for more of them"
    assert cafcat("query", "largest-files", "").err == f"cafcat: {expected}\n"
    assert not cafcat("query", "largest-files", "", "--json").err


@pytest.mark.parametrize("folder", ["tree", "tree/", "", "."])
def test_queries_of_a_folder(filled: Cafcat, folder: str) -> None:
    assert filled("query", "largest-files", folder, "--json").documents[0]["file_path"] == "tree/big.dat"
    assert filled("query", "folder-size", folder, "--json").document["files"] == len(TREE)
    assert filled("query", "etags", folder, "--json").documents == []


def test_sql(filled: Cafcat) -> None:
    query = (
        "SELECT 1 AS one, 2.5 AS half, 10::numeric AS ten, NULL AS nothing, 'a\nb' AS text,"
        " 'NaN'::float8 AS nan, '\\x00ff'::bytea AS bytes, timestamptz '2026-11-21T10:00:00Z' AS time"
    )
    document = filled("sql", "--json", "-c", query).document
    assert str(document.pop("time")).startswith("2026-11-21")
    assert document == {
        "one": 1,
        "half": 2.5,
        "ten": 10,
        "nothing": None,
        "text": "a\nb",
        "nan": "NaN",
        "bytes": "\\x00ff",
    }
    assert filled("sql", "-c", "SELECT 1 AS one, 'a\nb' AS text, NULL AS last").lines == [
        "one  text  last",
        "---  ----  ----",
        "1    a\\nb",
    ]
    assert filled("sql", "-c", "SELECT file_path FROM file_locations").out.count(b"\n") == len(TREE) + 2
    assert filled("sql", "--json", "-c", "TABLE cafcat_ops.single_copy").documents
    remedy = "give one SELECT, VALUES, TABLE or WITH query, which changes nothing; `cafcat sql` alone opens psql"
    for command in ("SET work_mem = '8MB'", "EXPLAIN SELECT 1", "SHOW work_mem"):
        assert remedy in filled("sql", "-c", command, code=2).err
    assert "SELECT, VALUES, TABLE or WITH" in " ".join(filled("sql", "--help").text.split())
    assert filled("sql", "-c", "COMMIT; DELETE FROM file_locations", code=2).err.count("\n") == 1
    assert filled("sql", "-c", "DELETE FROM file_locations", "--json", code=2).error["kind"] == "invalid_input"
    assert "this is no query: it begins with 'nonsense'; " in filled("sql", "-c", " nonsense", code=2).err
    assert "syntax error at end of input" in filled("sql", "-c", " ", code=2).err
    assert 'syntax error at or near "x"' in filled("sql", "-c", "SELECT 1 AS a x", code=2).err
    filled("sql", "--json", code=2)
    assert (
        "two columns have the name 'a'"
        in filled("sql", "--json", "-c", "SELECT 1 AS a, 2 AS a", code=2).error["message"]
    )


def test_sql_without_a_database(cafcat: Cafcat) -> None:
    """The exit code is 10. psql's own would be 2, which means wrong arguments in cafcat."""
    for arguments in ((), ("-c", "SELECT 1")):
        assert "database" in cafcat("--database-url", "postgresql://127.0.0.1:1/x", "sql", *arguments, code=10).err


def test_sql_opens_psql(filled: Cafcat) -> None:
    result = filled("sql", stdin=b"\\pset format unaligned\nSELECT count(*) AS files FROM file_locations;\n")
    assert f"files\n{len(TREE)}\n" in result.text


def test_db(filled: Cafcat) -> None:
    current = filled("db", "current", "--json").document
    assert current["revision"] == current["needed"]
    assert filled("db", "check", "--json").document == {"findings": []}
    assert filled("db", "init", "--json").document == {"revision": current["needed"]}
    assert filled("db", "upgrade", "--json").document == {"from": current["needed"], "to": current["needed"]}
    assert "already" in filled("db", "upgrade").text
    url = filled("db", "url").text.removesuffix("\n")
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM file_locations").fetchone() == (len(TREE),)
    assert filled("db", "stop", "--json", code=2).error["kind"] == "invalid_input"


def test_db_check_finds_wrong_counters(cafcat: Cafcat) -> None:
    (cafcat.folder / "f").write_bytes(b"f")
    cafcat("ingest", "f")
    assert cafcat.database_url
    with psycopg.connect(cafcat.database_url) as connection:
        connection.execute("UPDATE chunks SET live_file_count = 0, live_bytes = 0")
    findings = cafcat("db", "check", "--json", code=5).document["findings"]
    assert len(findings) >= 1
    *shown, remedy = cafcat("db", "check", code=5).lines
    assert shown == findings
    assert remedy.startswith("to bring the rows back: cafcat restore (a backup) or cafcat rebuild")


def test_a_given_database_is_never_migrated_by_itself(tmp_path: Path, empty_database_url: str) -> None:
    cafcat = Cafcat(tmp_path, empty_database_url)
    (tmp_path / "f").write_bytes(b"f")
    for verb in (["ls"], ["ingest", "f"], ["get", "f"]):
        error = cafcat(*verb, "--json", code=10).error
        assert error["kind"] == "catalog_revision"
        assert "cafcat db" in f"{error['message']} {error['hint']}"
    current = cafcat("db", "current", "--json").document
    assert current["revision"] is None
    assert cafcat("db", "upgrade").text == f"the database is ready, at revision {current['needed']}\n"
    cafcat("ingest", "f")
    with psycopg.connect(empty_database_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    assert cafcat("ls", code=10).err.count("\n") == 1


def test_without_a_url_the_embedded_database_starts_by_itself(tmp_path: Path) -> None:
    cafcat = Cafcat(tmp_path, None)
    try:
        (tmp_path / "f").write_bytes(b"content")
        made = f"cafcat: made a new catalog in {tmp_path / 'home'}, which had none\n"
        assert cafcat("ingest", "f").err == made
        assert cafcat("cat", "f").err == ""
        assert cafcat("cat", "f").out == b"content"
        assert cafcat("db", "check").text == "nothing is wrong\n"
        assert os.listdir(tmp_path / "store")
    finally:
        assert cafcat("db", "stop").text == "stopped\n"
    assert cafcat("db", "stop", "-q").text == ""
    assert cafcat("db", "stop", "--json").document == {"stopped": False}


@pytest.mark.parametrize(
    "arguments",
    [
        *(["get", "f"], ["ls"], ["find"], ["verify"], ["backup"], ["sql", "-c", "SELECT 1"], ["search", "f"]),
        *(["export", "-o", "all.tar"], ["undelete", "-l"], ["backup", "--list"], ["store", "ls"], ["limits"]),
        *(["db", "check"], ["db", "current"], ["db", "url"]),
    ],
)
def test_a_command_that_needs_files_makes_no_catalog(tmp_path: Path, arguments: list[str]) -> None:
    """A mistyped home must not look like an empty catalog."""
    cafcat, home = Cafcat(tmp_path, None), tmp_path / "typo"
    error = cafcat(*arguments, "--home", str(home), "--json", code=10).error
    assert error["message"] == f"there is no catalog in {home}"
    assert "check --home and CAFCAT_HOME" in error["hint"]
    assert not home.exists()
    assert not (tmp_path / "all.tar").exists()


@pytest.mark.parametrize("url", ["postgresql:///none?host=/nowhere", "host=127.0.0.1 port=1 dbname=x"])
def test_a_database_that_does_not_answer(tmp_path: Path, url: str) -> None:
    cafcat = Cafcat(tmp_path, url)
    assert cafcat("ls", "--json", code=10).error["kind"] == "catalog_unavailable"
    assert cafcat("ls", code=10).err.count("\n") == 1
