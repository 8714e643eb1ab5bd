"""docs/snapshots.md: the tables equal those of a snapshot; Python and SQL run."""

import contextlib
import re
import sqlite3
from pathlib import Path

import pytest

import cafcat
from cafcat.snapshots.schema import APPLICATION_ID, VERSION, SnapshotInfo
from tests.docs.test_pages import blocks

PAGE = Path(__file__).parents[2] / "docs" / "snapshots.md"
TEXT = PAGE.read_text()


@pytest.fixture
def taken(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A snapshot of the files that the page mentions, under the same name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CAFCAT_DATABASE_URL", database_url)
    monkeypatch.setenv("CAFCAT_HOME", str(tmp_path / "home"))
    for path in ("photos/2024/a.jpg", "photos/2024/may/b.jpg"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(path.encode())
    with cafcat.open() as repository:
        repository.ingest(["photos"])
        repository.snapshot("photos.cafs", "photos/2024")
    return tmp_path / "photos.cafs"


def test_the_python_runs(taken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = blocks(PAGE, "python")
    exec(first, {})  # noqa: S102 - our own page
    said = capsys.readouterr().out
    assert re.fullmatch(r"2 files as of \S+Z\nphotos/2024/may/b\.jpg 21\n", said)
    found: dict[str, object] = {}
    exec(second, found)  # noqa: S102
    assert str(found["path"]).encode() == found["data"]
    assert found["photos"].__getitems__([0]) == [("photos/2024/a.jpg", b"photos/2024/a.jpg")]  # type: ignore[attr-defined]
    found["photos"].snapshot.close()  # type: ignore[attr-defined]


def test_the_sql_runs(taken: Path) -> None:
    statements = blocks(PAGE, "sqlite")
    assert len(statements) == 4
    with contextlib.closing(sqlite3.connect(taken)) as connection:
        assert all(connection.execute(statement).fetchall() for statement in statements)


def test_store_url_of_a_copy_can_be_changed(taken: Path, tmp_path: Path) -> None:
    [statement] = re.findall(r'`sqlite3 copy\.cafs "(UPDATE .*?)"`', TEXT)
    (tmp_path / "home" / "chunks").rename(tmp_path / "moved")
    with contextlib.closing(sqlite3.connect(taken)) as connection, connection:
        connection.execute(statement.replace("file:///mnt/chunks", (tmp_path / "moved").as_uri()))
    with cafcat.Snapshot(taken) as snapshot:
        assert snapshot.read("photos/2024/a.jpg") == b"photos/2024/a.jpg"


def test_tables_are_documented(taken: Path) -> None:
    section = TEXT.split("## The tables")[1]
    documented = {
        table: re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`[^|]*)\|", rows, re.MULTILINE)))
        for table, rows in re.findall(r"^\| `(\w+)` \|[^\n]*\n\|---\|---\|\n((?:\|.*\n)+)", section, re.MULTILINE)
    }
    with contextlib.closing(sqlite3.connect(taken)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        columns = {table: {row[1] for row in connection.execute(f"PRAGMA table_info({table})")} for table in tables}
    assert {table: set(names) for table, names in documented.items()} == columns
    assert f"{APPLICATION_ID:#x}" in section
    assert f"the version of these tables: {VERSION}." in section


def test_methods_are_documented() -> None:
    section = TEXT.split("## In Python")[1].split("## Limits")[0]
    public = {name for name in vars(cafcat.Snapshot) if not name.startswith("_")} - {"after_fork"}
    rows = re.findall(r"^\| `(\w+)[(.`]", section, re.MULTILINE)
    assert set(rows) == public | {"info"}
    assert all(f"`{name}`" in section for name in SnapshotInfo._fields)
