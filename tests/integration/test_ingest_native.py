"""An ingest with the native part and one without pack the same chunks, and give the same rows and reports."""

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from random import Random
from typing import Any

import pytest

import cafcat
from cafcat.native.folder import ListedFiles
from cafcat.native.library import turned_off
from cafcat.operations.ingest import packer
from cafcat.sources.local.walk import Walk
from cafcat.writing.chunk import OpenChunk
from tests.worlds.catalog_world import sql
from tests.worlds.mounts import needs_fuse
from tests.worlds.native import needs_library
from tests.worlds.native_packing import make_tree
from tests.worlds.servers.services import Databases
from tests.worlds.waiting import PATIENCE_SECONDS, wait_until

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


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let calls end at the same file also if the machine is busy."""
    monkeypatch.setattr("cafcat.native.pack._MOST_MILLISECONDS", PATIENCE_SECONDS * 1000)


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


def test_one_call_packs_files_of_many_folders(
    both: list[cafcat.Repository], tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packer, "_CACHED_WAITS", 1e9)
    for n in range(300):
        folder = tree / "few" / f"{n // 60}" / f"{n:03}"
        (folder / "in").mkdir(parents=True)
        for name in ("a", "in/b", "z")[: n % 4]:
            (folder / name).write_bytes(Random(n).randbytes(n))
    (tree / "few/0/007/unusual").write_bytes(bytes(1 << 20))
    (tree / "few/0/009/\n").write_bytes(b"escaped")
    calls = counted_calls(monkeypatch, "add_columns")
    ingest_both(both, ["tree/few"])
    assert sum(calls) > 400
    assert len(calls) < 20
    ingest_both(both, ["tree"])


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

    def prefetching(*arguments: Any) -> tuple[int, int]:
        nonlocal is_waiting
        is_waiting = not until_prefetched
        end, _ = prefetch(*arguments)
        return end, arguments[1].file_count if prefetched else 0

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
def test_only_files_that_were_read_into_the_page_cache_are_packed_from_there(
    both: list[cafcat.Repository], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call ends after some time, perhaps before all files are read. The others would wait for the disk."""
    let_files_wait(monkeypatch, until_prefetched=True, prefetched=True)
    prefetch = OpenChunk.prefetch

    def of_some(chunk: OpenChunk, files: ListedFiles) -> tuple[int, int]:
        return prefetch(chunk, files.between(files.begin, min(files.begin + 300, files.end)))

    monkeypatch.setattr(OpenChunk, "prefetch", of_some)
    packed = counted_calls(monkeypatch, "add_columns")
    ingest_both(both, ["tree/many"])
    assert packed == [256, *[300] * 9, 44]


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


def test_a_call_ends_soon_if_files_take_long(
    both: list[cafcat.Repository], tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C has no effect within a call. Here each call has time for one file."""
    monkeypatch.setattr("cafcat.native.pack._MOST_MILLISECONDS", 0)
    monkeypatch.setattr(packer, "_CACHED_WAITS", 1e9)
    packed = counted_calls(monkeypatch, "add_columns")
    ingest_both(both, ["tree/many"])
    assert packed == [1] * FILES


@pytest.mark.usefixtures("many_files")
def test_reading_into_the_page_cache_ends_soon_if_files_take_long(
    both: list[cafcat.Repository], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here a call has time for no file."""
    let_files_wait(monkeypatch, until_prefetched=True, prefetched=True)
    prefetch = OpenChunk.prefetch
    counts = []

    def noted(*arguments: Any) -> Any:
        monkeypatch.setattr("cafcat.native.pack._MOST_MILLISECONDS", 0)
        found = prefetch(*arguments)
        monkeypatch.setattr("cafcat.native.pack._MOST_MILLISECONDS", PATIENCE_SECONDS * 1000)
        counts.append(found[0] - arguments[1].begin)
        return found

    monkeypatch.setattr(OpenChunk, "prefetch", noted)
    ingest_both(both, ["tree/many"])
    assert set(counts) == {0}


@pytest.mark.parametrize("moment", ["listed", "packed"])
@pytest.mark.parametrize("native", [True, False])
def test_a_folder_that_became_a_link_leads_to_no_file_outside(
    both: list[cafcat.Repository], tree: Path, moment: str, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who can write into the source replaces a folder by a link, to get files of others packed."""
    for name in ("secret/b", "tree/s/a/b"):
        (tree.parent / name).mkdir(parents=True)
        for n in range(100):
            (tree.parent / name / f"{n:03}").write_bytes(name.encode())

    def swap() -> None:
        if not (tree / "s/a").is_symlink():
            (tree / "s/a").rename(tree.parent / "moved")
            (tree / "s/a").symlink_to(tree.parent / "secret")

    opened = Walk.opened

    @contextmanager
    def then_swapped(*arguments: Any) -> Iterator[Any]:
        with opened(*arguments) as found:
            yield found
        if arguments[1].endswith("s/a/"):
            swap()

    def swapped_first(function: Any) -> Any:
        return lambda *arguments: (swap(), function(*arguments))[1]

    if moment == "listed":
        monkeypatch.setattr(Walk, "opened", then_swapped)
    else:
        for name in ("pack", "pack_columns"):
            monkeypatch.setattr(packer.Packer, name, swapped_first(getattr(packer.Packer, name)))
    with nullcontext() if native else turned_off():
        report = both[0].ingest(["tree/s"])
    assert (tree / "s/a").is_symlink()
    assert report.files_added == 0
    assert report.files_failed == (1 if moment == "listed" else 100)


REPEATING = """
import stat, sys
import mfusepy

class Repeating(mfusepy.Operations):
    def getattr(self, path, fh=None):
        is_folder = path in ("/", "/d")
        mode = stat.S_IFDIR | 0o755 if is_folder else stat.S_IFREG | 0o644
        return dict(st_mode=mode, st_nlink=1, st_size=0 if is_folder else 7, st_mtime=1.7e9, st_ctime=1.7e9)

    def readdir(self, path, fh):
        names = ["d"] if path == "/" else [f"{n:03}" for n in range(100)]
        return [".", "..", *names, *names[40:60]]

    def read(self, path, size, offset, fh):
        return b"content"[offset : offset + size]

mfusepy.FUSE(Repeating(), sys.argv[1], foreground=True)
"""


@contextmanager
def repeating_folder(mount: Path) -> Iterator[Path]:
    """Mount a file system whose folder lists twenty of its hundred names twice, and yield the folder."""
    process = subprocess.Popen([sys.executable, "-c", REPEATING, str(mount)])
    try:
        wait_until(lambda: os.path.ismount(mount))
        yield mount / "d"
    finally:
        subprocess.run(["umount", str(mount)], check=True)
        process.wait(PATIENCE_SECONDS)


@needs_fuse
@pytest.mark.skipif(os.getuid() != 0, reason="umount needs root")
def test_a_name_that_a_folder_lists_twice_is_packed_once(both: list[cafcat.Repository], tmp_path: Path) -> None:
    """Folders of tmpfs do this if they change meanwhile, and some file systems in user space."""
    (tmp_path / "mount").mkdir()
    with repeating_folder(tmp_path / "mount") as folder:
        first = both[0].ingest([folder], prefix="p")
        assert (first.files_added, first.files_failed) == (100, 0)
        second = both[0].ingest([folder], prefix="q", on_conflict="skip")
        assert (second.files_added, second.files_skipped) == (100, 0)
    assert both[0].verify(level="data").damaged == 0


@pytest.mark.parametrize("native", [True, False])
def test_another_name_of_a_file_of_cafcat_is_left_out(
    both: list[cafcat.Repository], tree: Path, native: bool
) -> None:
    home = Path(both[0].session.settings.home)
    home.mkdir(exist_ok=True)
    (home / "seal.key").write_bytes(b"secret")
    (tree / "many" / "link").hardlink_to(home / "seal.key")
    with nullcontext() if native else turned_off():
        report = both[0].ingest(["tree/many"])
    assert (report.files_added, report.files_skipped) == (FILES, 1)


def test_paths_beyond_the_limit_of_the_system(both: list[cafcat.Repository], tree: Path) -> None:
    """The system refuses paths from 4,096 bytes on, though it opens such files relative to their folder."""
    typed = f"{tree}{'/.' * ((4092 - len(str(tree / 'many'))) // 2)}/many"
    native, python = both
    report = native.ingest([typed])
    with turned_off():
        assert python.ingest([typed]).as_counts() == report.as_counts()
    assert (report.files_added, report.files_failed) == (0, FILES)
