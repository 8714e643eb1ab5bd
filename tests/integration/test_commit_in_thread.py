"""A thread commits a full chunk, while the next chunk is filled."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import cafcat
from cafcat.catalog.catalog import Catalog
from cafcat.errors import CatalogUnavailable, Conflict
from cafcat.events import ChunkCommitted, Event
from cafcat.model import OnConflict
from cafcat.operations.ingest import packer
from cafcat.reports import IngestReport
from tests.worlds.catalog_world import commit, sql
from tests.worlds.listeners import AfterFiles, Following
from tests.worlds.waiting import wait_until

FILES = {f"tree/{n:02}": bytes([n]) * 1000 for n in range(20)}
IN_A_CHUNK = 4
STATES = "SELECT state FROM chunks ORDER BY id"


@pytest.fixture
def repository(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[cafcat.Repository]:
    """A repository for which every chunk is large. The current folder has a tree of twenty files."""
    monkeypatch.setattr(packer, "_LARGE_FILES", 1)
    monkeypatch.chdir(tmp_path)
    Path("tree").mkdir()
    for path, content in FILES.items():
        Path(path).write_bytes(content)
    with cafcat.open(
        database_url=database_url, home=tmp_path / "home", store=str(tmp_path / "store")
    ) as repository:
        yield repository


def ingest(repository: cafcat.Repository, progress: cafcat.Progress, **options: str) -> IngestReport:
    return repository.with_progress(progress).ingest(["tree"], target_size=5_500, jobs=1, **options)


@contextmanager
def no_commit(database_url: str) -> Iterator[None]:
    """Let every commit wait until the end of the `with` statement."""
    with psycopg.connect(database_url) as other:
        other.execute("LOCK TABLE file_locations IN EXCLUSIVE MODE")
        yield


class Seen(cafcat.Progress):
    """Counts files, and notes the number of files of each committed chunk."""

    def __init__(self) -> None:
        self.files = 0
        self.committed: list[int] = []

    def advance(self, files: int, _: int) -> None:
        self.files += files

    def emit(self, event: Event) -> None:
        if isinstance(event, ChunkCommitted):
            self.committed.append(event.file_count)


def test_packing_goes_on_while_a_commit_waits(repository: cafcat.Repository, database_url: str) -> None:
    """The chunk after it is filled, and then packing waits: only one chunk is committed at a time."""
    seen = Seen()
    with ThreadPoolExecutor(1) as threads:
        with no_commit(database_url):
            running = threads.submit(ingest, repository, seen)
            wait_until(lambda: seen.files == 2 * IN_A_CHUNK)
            assert sql(repository, STATES) == [("writing",), ("writing",)]
            assert not seen.committed
        report = running.result()
    assert seen.committed == [IN_A_CHUNK] * 5
    assert (report.files_added, report.chunks_committed) == (20, 5)
    assert {path: repository.read(path) for path in FILES} == FILES
    assert repository.session.catalog.reports.findings() == []


def test_the_error_of_a_commit_ends_the_ingest(repository: cafcat.Repository, tmp_path: Path) -> None:
    def bring_a_file() -> None:
        commit(repository, {"tree/01": b"of another process"})

    with pytest.raises(Conflict, match="another command"):
        ingest(repository, AfterFiles(IN_A_CHUNK, bring_a_file), on_conflict=OnConflict.FAIL)
    states = [state for (state,) in sql(repository, STATES)]
    assert sorted(set(states)) == ["abandoned", "committed"]
    assert states.count("committed") == 1
    assert len(list((tmp_path / "store").rglob("*.caf"))) == 1
    assert [location.path for location in repository.list()] == ["tree/01"]


def test_an_interrupt_while_a_commit_waits(
    repository: cafcat.Repository, database_url: str, tmp_path: Path
) -> None:
    """The waiting commit is not broken off: its outcome would be unknown. The open chunk is dropped."""
    seen = Seen()

    def interrupt_at_the_third_chunk() -> None:
        if seen.files == 2 * IN_A_CHUNK:
            interrupted.append(True)
            raise KeyboardInterrupt

    interrupted: list[bool] = []
    with ThreadPoolExecutor(1) as threads:
        with no_commit(database_url):
            running = threads.submit(ingest, repository, Following(seen, interrupt_at_the_third_chunk))
            wait_until(lambda: interrupted)
        assert isinstance(running.exception(), KeyboardInterrupt)
    assert [state for (state,) in sql(repository, STATES)] == ["committed", "abandoned"]
    assert {location.path for location in repository.list()} == set(list(FILES)[:IN_A_CHUNK])
    [(added,)] = sql(repository, "SELECT files_added FROM ingest_runs ORDER BY id DESC LIMIT 1")
    assert added == IN_A_CHUNK
    assert len(list((tmp_path / "store").rglob("*.caf"))) == 1
    assert ingest(repository, cafcat.Progress()).files_added == 16


def test_a_path_of_the_chunk_in_commit_is_decided_after_it(
    repository: cafcat.Repository, database_url: str
) -> None:
    """The second source has files again that are in the chunk whose commit waits."""
    seen = Seen()
    names = [f"tree/{n:02}" for n in (0, 1, 2, 3, 4, 0, 5)]
    Path("names").write_text("\n".join(names))
    with ThreadPoolExecutor(1) as threads:
        with no_commit(database_url):
            running = threads.submit(repository.with_progress(seen).ingest, files_from="names", target_size=5_500)
            wait_until(lambda: seen.files == IN_A_CHUNK + 1)
        report = running.result()
    assert (report.files_added, report.files_unchanged, report.files_replaced) == (6, 1, 0)


def test_a_database_that_takes_one_connection(
    repository: cafcat.Repository, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both threads then share the connection."""
    refused: list[CatalogUnavailable] = []
    connect = Catalog.connect

    def noted(catalog: Catalog) -> None:
        try:
            connect(catalog)
        except CatalogUnavailable as error:
            refused.append(error)
            raise

    def is_connected() -> bool:
        """Return False while the server has not ended the connection of the ALTER statement yet."""
        with suppress(CatalogUnavailable):
            connect(repository.session.catalog)
            return True
        return False

    def is_unlimited() -> bool:
        """Return False while the server has not ended the connection of the catalog yet."""
        with suppress(psycopg.OperationalError):
            sql(repository, f"{limit} -1")
            return True
        return False

    monkeypatch.setattr(Catalog, "connect", noted)
    limit = f"ALTER DATABASE {conninfo_to_dict(database_url)['dbname']} CONNECTION LIMIT"
    sql(repository, f"{limit} 1")
    try:
        wait_until(is_connected)
        assert ingest(repository, cafcat.Progress()).files_added == 20
    finally:
        repository.session.catalog.close()
        wait_until(is_unlimited)
    assert refused
    assert {path: repository.read(path) for path in FILES} == FILES
