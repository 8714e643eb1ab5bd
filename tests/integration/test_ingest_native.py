"""An ingest with the native part and one without pack the same chunks, and give the same rows and reports."""

import tarfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import cafcat
from cafcat.native.library import turned_off
from cafcat.operations.ingest import packer
from cafcat.writing.chunk import OpenChunk
from tests.worlds.catalog_world import sql
from tests.worlds.native import needs_library
from tests.worlds.native_packing import make_tree
from tests.worlds.servers.services import Databases

pytestmark = needs_library

ROWS = """
SELECT l.file_path, c.id, l.start_byte, l.end_byte, l.crc32c, l.modified_at, l.decoding, s.url
FROM file_locations AS l JOIN chunks AS c ON c.id = l.caf_file_id LEFT JOIN sources AS s ON s.id = l.source_id
ORDER BY 1
"""
CHUNKS = "SELECT id, state, size_bytes, file_count, live_bytes, crc64nvme, index_crc32c FROM chunks ORDER BY 1"
SIZES = ROWS.replace("c.id, l.start_byte, l.end_byte", "l.end_byte - l.start_byte")
FOLDERS = "SELECT * FROM cafcat_ops.folders ORDER BY 1"
FILES = 600


@pytest.fixture
def both(databases: Databases, tmp_path: Path) -> Iterator[list[cafcat.Repository]]:
    """Two repositories with empty catalogs: one for ingests with the library, one for ingests without."""
    with databases.fresh(databases.template()) as one, databases.fresh(databases.template()) as other:
        opened = [
            cafcat.open(database_url=url, store=str(tmp_path / name), home=str(tmp_path / f"{name} home"))
            for url, name in ((one, "native"), (other, "python"))
        ]
        yield opened
        for repository in opened:
            repository.close()


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three random trees, and a folder with more files than one call of the library packs."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "tree"
    folder.mkdir()
    for seed in range(3):
        make_tree(folder / f"t{seed}", Random(seed), others=seed == 2)
    (folder / "many").mkdir()
    for n in range(FILES):
        (folder / "many" / f"{n:04}").write_bytes(Random(n).randbytes(n * 7 % 3000))
    (folder / "large").write_bytes(bytes(5 << 20))
    return folder


def ingest_both(both: list[cafcat.Repository], sources: list[str], **options: Any) -> None:
    """Ingest with and without the library, and compare all that was written."""
    native, python = both
    reports = [native.ingest(sources, **options)]
    with turned_off():
        reports.append(python.ingest(sources, **options))
    assert reports[0].as_counts() == reports[1].as_counts()
    for query in (ROWS, CHUNKS, FOLDERS):
        assert sql(native, query) == sql(python, query)
    assert native.session.catalog.reports.findings() == []
    assert native.verify(level="data").damaged == 0


@pytest.mark.parametrize("options", [{}, {"prefix": "old"}, {"format": "car"}])
def test_a_tree_and_its_changes(both: list[cafcat.Repository], tree: Path, options: dict[str, Any]) -> None:
    ingest_both(both, ["tree"], **options)
    assert sql(both[0], "SELECT count(*) FROM file_locations")[0][0] > FILES
    for n in range(0, FILES, 7):
        (tree / "many" / f"{n:04}").write_bytes(b"changed")
    (tree / "new").write_bytes(b"new")
    ingest_both(both, ["tree"], **options)


def test_two_sources_of_which_the_second_sorts_before_the_first(both: list[cafcat.Repository], tree: Path) -> None:
    """The open chunk then has paths that do not ascend."""
    ingest_both(both, ["tree/t1", "tree/many", "tree/t0", "tree/t2"])


def test_a_path_in_the_middle_of_a_folder_that_an_earlier_source_brought(
    both: list[cafcat.Repository], tree: Path
) -> None:
    """The open chunk has this path, but not the first path of the folder."""
    with tarfile.open("earlier.tar", "w") as archive:
        archive.add("tree/many/0500")
    (tree / "many" / "0500").write_bytes(b"of the folder")
    ingest_both(both, ["earlier.tar", "tree/many"])
    assert both[0].read("tree/many/0500") == b"of the folder"


def test_the_library_packs_the_files(
    both: list[cafcat.Repository], tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without this test, the others would also pass if the library were never used."""
    packed = []
    add_columns = OpenChunk.add_columns

    def counted(*arguments: Any) -> Any:
        found = add_columns(*arguments)
        packed.append(found.end - arguments[1].begin)
        return found

    monkeypatch.setattr(OpenChunk, "add_columns", counted)
    monkeypatch.setattr(packer, "_CACHED_WAITS", 1e9)
    both[0].ingest(["tree"])
    assert sum(packed) >= FILES


def test_full_chunks(both: list[cafcat.Repository], tree: Path) -> None:
    """The two ways may end a chunk at another file, because Python estimates the end of the index."""
    native, python = both
    native.ingest(["tree"], target_size=100_000)
    with turned_off():
        python.ingest(["tree"], target_size=100_000)
    assert sql(native, SIZES) == sql(python, SIZES)
    assert {state for (state,) in sql(native, "SELECT state FROM chunks")} == {"committed"}
    chunks = sql(native, "SELECT size_bytes FROM chunks WHERE file_count > 1")
    assert len(chunks) > 5
    assert max(size for (size,) in chunks) <= 100_000
    assert native.verify(level="data").damaged == 0


def counted_calls(monkeypatch: pytest.MonkeyPatch, name: str) -> list[int]:
    """Return a list that gets how many files each call of a method of OpenChunk has handled from now on."""
    calls: list[int] = []
    function = getattr(OpenChunk, name)

    def counted(*arguments: Any) -> Any:
        found = function(*arguments)
        files = arguments[1]
        calls.append((found.end if name == "add_columns" else files.end) - files.begin)
        return found

    monkeypatch.setattr(OpenChunk, name, counted)
    return calls


def let_files_wait(monkeypatch: pytest.MonkeyPatch, *, until_prefetched: bool, prefetched: bool) -> None:
    """Let each file that the library packs wait once, as a file that is not in memory does.

    Args:
        monkeypatch: Changes OpenChunk.
        until_prefetched: Packed files no longer wait after the first call of `prefetch`.
        prefetched: Files also wait in calls of `prefetch`.
    """
    add_columns, prefetch = OpenChunk.add_columns, OpenChunk.prefetch
    is_waiting = True

    def packing(*arguments: Any) -> Any:
        found = add_columns(*arguments)
        return found._replace(waits=found.end - arguments[1].begin if is_waiting else 0)

    def prefetching(*arguments: Any) -> int:
        nonlocal is_waiting
        is_waiting = not until_prefetched
        prefetch(*arguments)
        return arguments[1].file_count if prefetched else 0

    monkeypatch.setattr(OpenChunk, "add_columns", packing)
    monkeypatch.setattr(OpenChunk, "prefetch", prefetching)


@pytest.fixture
def many_files(tree: Path) -> None:
    for n in range(FILES, 3000):
        (tree / "many" / f"{n:04}").write_bytes(b"%d" % n)


@pytest.mark.usefixtures("many_files")
def test_files_on_a_disk_are_read_into_the_page_cache(
    both: list[cafcat.Repository], monkeypatch: pytest.MonkeyPatch
) -> None:
    let_files_wait(monkeypatch, until_prefetched=True, prefetched=True)
    packed, prefetched = counted_calls(monkeypatch, "add_columns"), counted_calls(monkeypatch, "prefetch")
    ingest_both(both, ["tree/many"])
    assert sum(packed) == 3000
    assert prefetched == [1024, 1024, 3000 - 256 - 2 * 1024]


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize("jobs", [1, 2])
def test_files_in_the_page_cache_are_packed_at_once(
    both: list[cafcat.Repository], jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files were just written. Workers take processor time from each other, but cause no waits."""
    prefetched = counted_calls(monkeypatch, "prefetch")
    both[0].ingest(["tree/many"], jobs=jobs)
    assert prefetched == []


@pytest.mark.usefixtures("many_files")
def test_files_that_were_in_the_page_cache_are_not_read_twice(
    both: list[cafcat.Repository], monkeypatch: pytest.MonkeyPatch
) -> None:
    let_files_wait(monkeypatch, until_prefetched=False, prefetched=False)
    prefetched = counted_calls(monkeypatch, "prefetch")
    monkeypatch.setattr(packer, "PROBED_FILES", 2000)
    ingest_both(both, ["tree/many"])
    assert prefetched == [952]


@pytest.mark.usefixtures("many_files")
def test_files_of_a_server_are_read_by_python(
    both: list[cafcat.Repository], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python reads several at the same time. After a thousand files, the library tries again."""
    let_files_wait(monkeypatch, until_prefetched=False, prefetched=True)
    packed, prefetched = counted_calls(monkeypatch, "add_columns"), counted_calls(monkeypatch, "prefetch")
    ingest_both(both, ["tree/many"])
    assert packed == [256, 1024, 32]
    assert prefetched == [1024]


def test_worker_processes_pack_the_same_files(both: list[cafcat.Repository], tree: Path) -> None:
    native, python = both
    for n in range(FILES, 5000):
        (tree / "many" / f"{n:04}").write_bytes(b"%d" % n)
    native.ingest(["tree"], jobs=2)
    with turned_off():
        python.ingest(["tree"])
    assert sql(native, SIZES) == sql(python, SIZES)
    assert sql(native, FOLDERS) == sql(python, FOLDERS)
    assert native.verify(level="data").damaged == 0
