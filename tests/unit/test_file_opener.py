"""Small files that are read at once, and several at a time if reading is slow."""

import pickle
import random
import threading
import time
from pathlib import Path

import pytest

from cafcat.errors import SourceFailed
from cafcat.model import NewFile, SourceFile
from cafcat.sources.local import files as module
from cafcat.sources.local.directory import DirectorySource
from cafcat.sources.local.files import FileOpener, OpenLocalFile
from tests.worlds.open_files import open_files


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for number in range(300):
        (tmp_path / f"f{number:03}").write_bytes(b"%d" % number)
    (tmp_path / "large").write_bytes(random.randbytes(200_000))
    return tmp_path


def listed(tree: Path) -> list[SourceFile]:
    return [found for found in DirectorySource(str(tree)).files() if isinstance(found, SourceFile)]


def said(result: NewFile | OpenLocalFile | SourceFailed) -> bytes | str:
    if isinstance(result, NewFile):
        return result.content
    if isinstance(result, SourceFailed):
        return result.problem
    with result as opened:
        return opened.read()


@pytest.mark.parametrize("is_slow", [False, True])
def test_files_come_in_order_whoever_reads_them(tree: Path, is_slow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    files = listed(tree)
    (tree / "f070").unlink()
    (tree / "f080").write_bytes(b"other")
    if is_slow:
        monkeypatch.setattr(module, "_SLOW_SECONDS", 0.0)
    opener: FileOpener = pickle.loads(pickle.dumps(FileOpener(follow_symlinks=False)))  # noqa: S301 - our own
    found = {
        file.path.rpartition("/")[2]: said(result)
        for file, result in zip(files, opener.read_each(files), strict=True)
    }
    expected: dict[str, bytes | str] = {path.name: path.read_bytes() for path in tree.iterdir()}
    assert found == expected | {"f070": "vanished"}


def test_slow_files_are_read_several_at_a_time(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = threading.Lock()
    under_way = most = 0
    real = FileOpener._read_small

    def slow(self: FileOpener, file: SourceFile) -> NewFile | SourceFile:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        time.sleep(0.002)
        with lock:
            under_way -= 1
        return real(self, file)

    monkeypatch.setattr(FileOpener, "_read_small", slow)
    files = listed(tree)
    results = list(FileOpener(follow_symlinks=False).read_each(files))
    assert [said(result) for result in results] == [Path(file.locator).read_bytes() for file in files]
    assert most > 3


def test_unfinished_iteration_leaves_no_file_open(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SLOW_SECONDS", 0.0)
    for file in tree.iterdir():  # each file must be opened, because it differs from the listing
        file.touch()
    files = [file._replace(modified_ns=1) for file in listed(tree)]
    results = FileOpener(follow_symlinks=False).read_each(files)
    for _ in range(100):
        with next(results):  # type: ignore[union-attr]
            pass
    results.close()  # type: ignore[attr-defined]
    assert open_files(tree) == []
