"""Files whose contents a program gives: chunks, commits, conflicts, streams, failures and kills."""

import io
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cafcat
from cafcat.errors import Conflict, InvalidInput, Refused, SourceFailed, StoreFailed, Unsupported
from cafcat.model import ChunkState, OnConflict, RunState
from tests.worlds.listeners import Heard

CONTENT = random.Random(3)


@pytest.fixture
def repository(database_url: str, tmp_path: Path) -> Iterator[cafcat.Repository]:
    store = str(tmp_path / "store")
    with cafcat.open(database_url=database_url, home=tmp_path / "home", store=store) as repository:
        yield repository


def contents(repository: cafcat.Repository) -> dict[str, bytes]:
    found = dict(repository.read_many([location.path for location in repository.list()]))
    assert all(isinstance(content, bytes) for content in found.values())
    return found  # type: ignore[return-value]


def check(repository: cafcat.Repository, expected: dict[str, bytes]) -> None:
    """Check that the catalog has exactly these files, and that nothing is damaged or left over."""
    assert contents(repository) == expected
    assert list(repository.session.catalog.reports.findings()) == []
    assert repository.verify(level="data", jobs=1).damaged == 0


@pytest.mark.parametrize("format", ["caf", "car", "chunkio", "databundle"])
def test_files_are_packed_into_chunks_of_the_target_size(repository: cafcat.Repository, format: str) -> None:
    files = {f"a/{number:04}": CONTENT.randbytes(number % 300) for number in range(3000)}
    files |= {"large": CONTENT.randbytes(3_000_000), "empty": b""}
    with repository.writer(format=format, target_size=200_000) as writer:
        for path, content in files.items():
            writer.add(path, content)
    check(repository, files)
    assert writer.report.files_added == len(files)
    chunks = list(repository.chunks(ChunkState.COMMITTED))
    assert len(chunks) == writer.report.chunks_committed > 2
    assert {chunk.format for chunk in chunks} == {format}
    assert all((chunk.size_bytes or 0) <= 200_000 for chunk in chunks if chunk.file_count != 1)
    run = repository.runs()[0]
    assert (run.state, run.files_added, run.sources) == (RunState.FINISHED, len(files), ("Repository.writer",))


class Unseekable(io.RawIOBase):
    """A stream of unknown size, which can fail."""

    def __init__(self, data: bytes, fails: bool = False) -> None:
        self._data = io.BytesIO(data)
        self._fails = fails

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._data.read(min(size, 1000))
        if self._fails and not data:
            raise OSError("the line is dead")
        return data


@pytest.mark.parametrize("size_bytes", [0, 10, 3_000_000])
def test_streams_of_every_kind_are_added(repository: cafcat.Repository, tmp_path: Path, size_bytes: int) -> None:
    content = CONTENT.randbytes(size_bytes)
    (tmp_path / "file").write_bytes(b"head" + content)
    with repository.writer() as writer, (tmp_path / "file").open("rb") as file:
        file.seek(4)
        writer.add("file", file, modified_ns=1_234_000)
        writer.add("memory", io.BytesIO(content))
        writer.add("stream", Unseekable(content))
        writer.add("view", memoryview(bytearray(content)))
    check(repository, dict.fromkeys(["file", "memory", "stream", "view"], content))
    assert repository.locate("file").modified_ns == 1_234_000
    assert abs((repository.locate("memory").modified_ns or 0) - time.time_ns()) < 3600 * 10**9


def test_bytes_that_the_caller_changes_later_are_the_bytes_of_the_call(repository: cafcat.Repository) -> None:
    buffer = bytearray(b"before")
    with repository.writer() as writer:
        writer.add("a", buffer)
        buffer[:] = b"after!"
    check(repository, {"a": b"before"})


def test_commit_makes_files_visible_before_the_end(repository: cafcat.Repository) -> None:
    with repository.writer() as writer:
        writer.add("a", b"1")
        assert contents(repository) == {}
        writer.commit()
        assert contents(repository) == {"a": b"1"}
        writer.commit()
        writer.add("b", b"2")
    check(repository, {"a": b"1", "b": b"2"})
    assert writer.report.chunks_committed == 2


def test_a_running_run_has_the_counts_of_its_committed_chunks(repository: cafcat.Repository) -> None:
    with repository.writer() as writer:
        writer.add("a", b"first")
        writer.commit()
        writer.add("a", b"second")
        writer.add("b", b"third")
        writer.commit()
        [listed] = repository.runs()
        assert listed.state is RunState.RUNNING
        assert (listed.files_added, listed.files_replaced, listed.chunks_committed) == (2, 1, 2)
        assert listed.bytes_added == len(b"first" + b"second" + b"third")
        assert repository.run(listed.id) == listed


def test_the_action_for_an_existing_path_may_be_a_text(repository: cafcat.Repository) -> None:
    for on_conflict, content in (("replace", b"first"), ("replace", b"second"), ("skip", b"third")):
        with repository.writer(on_conflict=on_conflict) as writer:
            writer.add("a", content)
    check(repository, {"a": b"second"})
    with pytest.raises(Conflict), repository.writer(on_conflict="fail") as writer:
        writer.add("a", b"fourth")
    with pytest.raises(InvalidInput, match="on_conflict must be replace, skip or fail, not 'fial'"):
        repository.writer(on_conflict="fial")
    check(repository, {"a": b"second"})


def test_an_error_in_the_block_abandons_what_is_not_committed(repository: cafcat.Repository) -> None:
    with pytest.raises(RuntimeError, match="mine"), repository.writer() as writer:  # noqa: PT012
        writer.add("a", b"1")
        writer.commit()
        writer.add("b", b"2")
        raise RuntimeError("mine")
    check(repository, {"a": b"1"})
    assert repository.runs()[0].state is RunState.FAILED
    assert len(list(repository.chunks())) == 1, "the second chunk was not begun, or is abandoned"


def test_a_path_that_the_catalog_has(repository: cafcat.Repository) -> None:
    with repository.writer() as writer:
        writer.add("a", b"old")
        writer.add("a", b"newer")  # the same path again, in the same batch
    check(repository, {"a": b"newer"})
    with repository.writer() as writer:
        writer.add("a", b"new")
    check(repository, {"a": b"new"})
    assert writer.report.files_replaced == 1
    with repository.writer(on_conflict=OnConflict.SKIP) as writer:
        writer.add("a", b"skipped")
        writer.add("b", b"1")
    check(repository, {"a": b"new", "b": b"1"})
    assert writer.report.files_skipped == 1
    with pytest.raises(Conflict), repository.writer(on_conflict=OnConflict.FAIL) as writer:  # noqa: PT012
        writer.add("c", b"1")
        writer.add("b", b"2")
    check(repository, {"a": b"new", "b": b"1"})


@pytest.mark.parametrize("path", ["", "/a", "a/", "a//b", "./a", "a/../b", "..", "a\0b", "a\ud800", "x" * 2049])
def test_paths_that_no_ingest_would_make_are_refused(repository: cafcat.Repository, path: str) -> None:
    with repository.writer() as writer:
        with pytest.raises(InvalidInput, match="no file can be written under this path"):
            writer.add(path, b"1")
        writer.add("good", b"2")
    check(repository, {"good": b"2"})


def test_a_path_that_is_no_text_is_refused(repository: cafcat.Repository) -> None:
    paths: list[Any] = [5, None, b"a", Path("a")]
    with repository.writer() as writer:
        for path in paths:
            with pytest.raises(InvalidInput, match=f"^a path must be a text, not {type(path).__name__}"):
                writer.add(path, b"1")
    check(repository, {})


def test_contents_that_are_not_binary_are_refused(repository: cafcat.Repository, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("text")
    with repository.writer() as writer, (tmp_path / "text").open() as file:
        contents: list[Any] = ["text", None, 5, file, io.StringIO("text")]
        for content in contents:
            with pytest.raises(InvalidInput, match="must be bytes or a binary file"):
                writer.add("a", content)


def test_a_stream_that_fails_costs_only_its_own_file(repository: cafcat.Repository) -> None:
    class Shrinks(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(min(size or 0, 100_000)) if self.tell() < 1_500_000 else b""

    heard = Heard()
    with repository.with_progress(heard).writer() as writer:
        writer.add("a", b"1")
        with pytest.raises(SourceFailed, match="ended 500,000 bytes before its end"):
            writer.add("b", Shrinks(bytes(2_000_000)))
        with pytest.raises(OSError, match="dead"):
            writer.add("c", Unseekable(b"data", fails=True))
        writer.add("d", b"2")
    check(repository, {"a": b"1", "d": b"2"})
    assert [problem.path for problem in heard.problems] == ["b"]
    assert writer.report.files_failed == 1


def test_a_file_that_is_too_large_for_any_chunk_is_refused(repository: cafcat.Repository) -> None:
    class Endless(io.BytesIO):
        def seek(self, offset: int, whence: int = 0) -> int:
            return 1 << 50 if whence == io.SEEK_END else super().seek(offset, whence)

    with repository.writer() as writer:
        writer.add("a", b"1")
        with pytest.raises(Refused, match="does not fit into a chunk"):
            writer.add("large", Endless())
        writer.add("b", b"2")
    check(repository, {"a": b"1", "b": b"2"})


def test_a_writer_is_used_in_its_block_only(repository: cafcat.Repository) -> None:
    writer = repository.writer()
    with pytest.raises(InvalidInput, match="not open"):
        writer.add("a", b"1")
    with writer:
        writer.add("a", b"1")
    for use in (writer.commit, lambda: writer.add("b", b"2")):
        with pytest.raises(InvalidInput, match="not open"):
            use()
    with pytest.raises(InvalidInput, match="archives of logs"):
        repository.writer(format="clp-s")
    with pytest.raises(InvalidInput, match="target size"):
        repository.writer(target_size=0)
    with pytest.raises((InvalidInput, Unsupported)):
        repository.writer(format="nothing")


def test_a_store_that_fails_leaves_nothing(repository: cafcat.Repository, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "catalogs").write_text("no folder")
    with pytest.raises(StoreFailed), repository.writer() as writer:
        writer.add("a", b"1")
    assert contents(repository) == {}


KILLED = """
import sys, os, cafcat
with cafcat.open(database_url=sys.argv[1], home=sys.argv[2], store=sys.argv[3]) as repository:
    with repository.writer(target_size=20_000) as writer:
        for number in range(10_000):
            writer.add(f"{number:05}", b"%05d" % number * 20)
            if number == int(sys.argv[4]):
                os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("after", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (999, 5500)), 1000])
def test_a_killed_writer_leaves_whole_chunks(
    repository: cafcat.Repository, database_url: str, tmp_path: Path, after: int
) -> None:
    arguments = [database_url, str(tmp_path / "home"), str(tmp_path / "store"), str(after)]
    process = subprocess.run(
        [sys.executable, "-c", KILLED, *arguments], env=os.environ, cwd=Path(__file__).parents[2]
    )
    assert process.returncode == -signal.SIGKILL
    repository.recover()
    found = contents(repository)
    assert found == {path: path.encode() * 20 for path in found}
    assert sorted(found) == [f"{number:05}" for number in range(len(found))]
    assert len(found) <= after + 1
    check(repository, found)
    with repository.writer() as writer:
        writer.add("after", b"1")
    assert repository.read("after") == b"1"
