"""Changes of the layout that are killed, interrupted, or run beside readers and writers."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import cafcat
from cafcat.operations.partition.run import run
from cafcat.progress import Progress
from tests.worlds.kills.killed_steps import Steps
from tests.worlds.layout_world import CONTENT, PARTITIONS, execute, fill, partitions, relations

# Kills.


def killed(database_url: str, number: int, target: int) -> int:
    """Run a change in a child process that kills itself at a step. Return the exit code; 0 without such a step."""
    child = os.fork()
    if child == 0:
        try:
            with cafcat.open(database_url=database_url) as repository:
                steps = Steps(number, after=True)
                steps.count_statements()
                run(repository.session, target)
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("step", [29, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_change_continues(database_url: str, step: int) -> None:
    """Each change is killed at one step, and then completed. Writers go on after each kill."""
    fill(database_url, 0, 999)
    codes = []
    for number in range(3, 1000, step):
        target = PARTITIONS if partitions(database_url) == 0 else 0
        code = killed(database_url, number, target)
        codes.append(code)
        execute(database_url, f"DELETE FROM file_locations WHERE start_byte = {number}")
        fill(database_url, 1000 + number, 1000 + number)
        rows = execute(database_url, CONTENT.format("file_locations"))
        with cafcat.open(database_url=database_url) as repository:
            run(repository.session, target)
        assert execute(database_url, CONTENT.format("file_locations")) == rows
        assert partitions(database_url) == target
        assert "layout_change" not in relations(database_url)
        if code == 0:
            break
    assert codes[-1] == 0
    assert codes.count(-signal.SIGKILL) == len(codes) - 1 >= 2


# Load.


@contextmanager
def repeating(function: Callable[[int], object]) -> Iterator[list[BaseException]]:
    """Call a function with 0, 1, 2 ... in a thread meanwhile. Yield a list that gets the error that ends it."""
    errors: list[BaseException] = []
    ending = threading.Event()

    def work() -> None:
        number = 0
        try:
            while not ending.is_set():
                function(number)
                number += 1
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield errors
    finally:
        ending.set()
        thread.join()


def test_readers_and_writers_go_on_while_the_layout_changes(database_url: str, tmp_path: Path) -> None:
    def opened() -> cafcat.Repository:
        return cafcat.open(database_url=database_url, home=tmp_path / "home", store=str(tmp_path / "store"))

    with opened() as writer, opened() as reader, opened() as changer:
        with writer.writer() as files:
            for number in range(200):
                files.add(f"kept/{number:03}", b"kept")
        fill(database_url, 0, 20_000)
        expected = dict.fromkeys((f"kept/{number:03}" for number in range(200)), b"kept")

        def write(number: int) -> None:
            name, content = f"written/{number % 7}/{number}", str(number).encode()
            with writer.writer() as files:
                files.add(name, content)
                files.add("replaced", content)
            expected.update({name: content, "replaced": content})
            if number % 3 == 0:
                writer.rm([name])
                writer.undelete([name])
            if number % 5 == 0:
                writer.rm([name])
                del expected[name]

        def read(number: int) -> None:
            assert reader.read(f"kept/{number % 200:03}") == b"kept"
            page = reader.session.catalog.files.page("kept/")
            assert len(page) == 200
            assert len(reader.session.catalog.files.locate_many(list(expected)[:200])) == 200

        with repeating(write) as failed_writes, repeating(read) as failed_reads:
            for target in (PARTITIONS, 0):
                run(changer.session, target)
                time.sleep(0.1)
        assert failed_writes == failed_reads == []
        rows = execute(database_url, "SELECT file_path FROM file_locations WHERE file_path NOT LIKE 'folder/%'")
        assert sorted(row[0] for row in rows) == sorted(expected)
        assert all(reader.read(path) == content for path, content in expected.items())
        # The rows were inserted by SQL, without a chunk and without totals of their folders.
        assert changer.session.catalog.reports.findings() == [
            "files that point to no committed chunk: 20001",
            "folders whose totals differ from their files: 2",
        ]


class _Stopping(Progress):
    def checkpoint(self) -> None:
        raise KeyboardInterrupt


def test_interrupted_change_is_continued(database_url: str) -> None:
    fill(database_url)
    with cafcat.open(database_url=database_url) as repository:
        usual = repository.session.progress
        repository.session.progress = _Stopping()
        with pytest.raises(KeyboardInterrupt):
            run(repository.session, PARTITIONS)
        repository.session.progress = usual
        assert run(repository.session, PARTITIONS).unfinished == "copying"
