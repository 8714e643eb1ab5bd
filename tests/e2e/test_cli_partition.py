"""`cafcat db init --partitions`, `db current` and `db partition` as commands."""

import psycopg

from tests.e2e.conftest import Cafcat


def layout(cafcat: Cafcat) -> int:
    with psycopg.connect(cafcat.database_url) as connection:
        found = connection.execute("SELECT count(*) FROM pg_inherits WHERE inhparent = 'file_locations'::regclass")
        return int(found.fetchall()[0][0])


def add_rows(cafcat: Cafcat) -> None:
    with psycopg.connect(cafcat.database_url) as connection:
        connection.execute(
            "INSERT INTO file_locations (caf_file_id, start_byte, end_byte, crc32c, file_path) "
            "SELECT 1, n, n, n, n::text FROM generate_series(1, 1000) AS n"
        )


def test_init_and_current_show_partitions(cafcat: Cafcat) -> None:
    assert cafcat("db", "current").lines[-1].split() == ["layout", "plain", "table"]
    cafcat("db", "init", "--partitions", "4")
    assert layout(cafcat) == 4
    assert cafcat("db", "current").lines[-1].split() == ["layout", "4", "partitions"]
    assert cafcat("db", "current", "--json").document["partitions"] == 4
    assert "from 2 to 1024" in cafcat("db", "init", "--partitions", "1", code=2).err


def test_partition_shows_the_space_first_and_changes_with_yes(cafcat: Cafcat) -> None:
    add_rows(cafcat)
    assert "nobody can be asked" in cafcat("db", "partition", "4", code=9).err
    shown = cafcat("db", "partition", "4", "--dry-run").text
    assert "of disk until its end" in shown
    assert "of write-ahead log" in shown
    assert layout(cafcat) == 0
    changed = cafcat("db", "partition", "4", "--yes")
    assert changed.lines == ["the catalog has 4 partitions"]
    assert "of disk until its end" in changed.err
    assert layout(cafcat) == 4
    again = cafcat("db", "partition", "4", "--yes", "--json")
    assert again.document["summary"]["changed"] is True
    assert again.err == ""


def test_objects_of_the_user_are_named_first(cafcat: Cafcat) -> None:
    add_rows(cafcat)
    with psycopg.connect(cafcat.database_url) as connection:
        connection.execute("CREATE INDEX mine ON file_locations (end_byte)")
        connection.execute("CREATE VIEW seen AS SELECT file_path FROM file_locations")
    for also in ("--dry-run", "--yes"):
        error = cafcat("db", "partition", "4", also, code=1).err
        assert "objects that cafcat did not make: index mine, view seen; drop them" in error
    assert "did not make" in cafcat("db", "partition", "4", code=1).err


def test_partition_needs_a_number_or_cancel(cafcat: Cafcat) -> None:
    assert "--cancel" in cafcat("db", "partition", code=2).err
    assert "--cancel" in cafcat("db", "partition", "4", "--cancel", code=2).err
    assert cafcat("db", "partition", "--cancel").lines == ["no change is unfinished"]


def test_an_unfinished_change_is_shown_and_cancelled(cafcat: Cafcat) -> None:
    from cafcat import open as open_repository

    add_rows(cafcat)
    with open_repository(database_url=cafcat.database_url) as repository:
        repository.session.catalog.layout.begin(4)
    assert "in the phase copying" in cafcat("db", "partition", "4", "--dry-run").text
    shown = "unfinished  change to 4 partitions; `cafcat db partition 4 --yes` continues it"
    assert cafcat("db", "current").lines[-1] == shown
    assert cafcat("db", "current", "--json").document["change"] == {"partitions": 4, "phase": "copying"}
    assert "a change to 4 partitions is unfinished" in cafcat("db", "partition", "8", "--yes", code=1).err
    assert cafcat("db", "partition", "--cancel", "--json").document == {"cancelled": True}
    assert cafcat("db", "current", "--json").document["change"] is None
    assert layout(cafcat) == 0
