"""Executors of clusters: processes of this host, Dask and Ray.

Dask and Ray run in processes of their own on this host. Tests of an engine that is not installed are skipped.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import wait
from concurrent.futures.process import BrokenProcessPool
from importlib.util import find_spec
from pathlib import Path

import pytest

from cafcat.clusters import open_cluster
from cafcat.errors import NotFound, NotInstalled, Unavailable
from cafcat.support.executors import EveryWorker, is_local, worker_count
from tests.worlds import cluster_calls as calls
from tests.worlds.dask_programs import DaskPrograms, free_port

PATIENCE = 60
needs_dask = pytest.mark.skipif(find_spec("distributed") is None, reason="the package distributed is missing")
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="the package ray is missing")
quiet = pytest.mark.filterwarnings("ignore")  # those of the engines


@pytest.fixture
def dask(tmp_path: Path) -> Iterator[DaskPrograms]:
    programs = DaskPrograms(tmp_path)
    try:
        programs.wait_for_workers()
        yield programs
    finally:
        programs.stop()


def test_local_processes_run_calls() -> None:
    with open_cluster("local://2") as cluster:
        executor = cluster.executor
        assert worker_count(executor) == 2
        assert is_local(executor)
        assert not isinstance(executor, EveryWorker)
        assert executor.submit(calls.add, 1, second=2).result() == 3
        assert executor.submit(calls.process_id).result() != os.getpid()
        with pytest.raises(NotFound, match="no x"):
            executor.submit(calls.fail, "x").result()


def test_a_local_pool_goes_on_after_a_process_died() -> None:
    with open_cluster("local://1") as cluster:
        before = cluster.executor.submit(calls.process_id).result()
        with pytest.raises(BrokenProcessPool):
            cluster.executor.submit(calls.die).result()
        assert cluster.executor.submit(calls.process_id).result() != before


def interrupted(seen: list[int]) -> None:
    """Interrupt a cluster while a call runs. seen: takes the id of the process."""
    with open_cluster("local://1") as cluster:
        seen.append(cluster.executor.submit(calls.process_id).result())
        cluster.executor.submit(calls.wait, 600)
        raise KeyboardInterrupt


def test_an_exception_ends_local_processes_at_once() -> None:
    begin = time.monotonic()
    seen: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(seen)
    [process] = seen
    while Path(f"/proc/{process}").exists() and "zombie" not in Path(f"/proc/{process}/status").read_text():
        assert time.monotonic() - begin < PATIENCE
        time.sleep(0.05)


@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_a_missing_library_is_named_with_its_extra(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, {"dask": "distributed", "ray": "ray"}[engine], None)
    with pytest.raises(NotInstalled, match=rf"pip install '\.\[{engine}\]'"), open_cluster(f"{engine}://h:1"):
        pass


@pytest.mark.parametrize("engine", [pytest.param("dask", marks=needs_dask), pytest.param("ray", marks=needs_ray)])
@quiet
def test_an_unreachable_scheduler_is_named(engine: str) -> None:
    port = free_port()
    with pytest.raises(Unavailable, match=f"127.0.0.1:{port}"), open_cluster(f"{engine}://127.0.0.1:{port}"):
        pass


@pytest.mark.slow
@needs_dask
@quiet
def test_dask_runs_calls_and_examines_workers(dask: DaskPrograms) -> None:
    with open_cluster(dask.url) as cluster:
        executor = cluster.executor
        assert isinstance(executor, EveryWorker)
        assert not is_local(executor)
        assert executor.submit(calls.add, 1, second=2).result(PATIENCE) == 3
        with pytest.raises(NotFound, match="no x") as caught:
            executor.submit(calls.fail, "x").result(PATIENCE)
        assert (caught.value.path, caught.value.hint) == ("x", "look elsewhere")
        busy = [executor.submit(calls.wait, 5) for _ in range(6)]
        found = executor.run_on_each_worker(calls.process_id)
        assert len(set(found.values())) == 2
        assert not any(future.done() for future in busy)
        assert {type(error) for error in executor.run_on_each_worker(calls.fail, "y").values()} == {NotFound}
        assert busy[-1].cancel()
        assert wait(busy, PATIENCE).not_done == set()


@pytest.mark.slow
@needs_dask
@quiet
def test_a_lost_scheduler_of_dask_ends_the_calls(dask: DaskPrograms) -> None:
    with open_cluster(dask.url) as cluster:
        futures = [cluster.executor.submit(calls.wait, 600) for _ in range(5)]
        dask.kill_scheduler()
        for future in futures:
            with pytest.raises(Unavailable, match="scheduler was lost"):
                future.result(PATIENCE)


@pytest.mark.slow
@needs_dask
@quiet
def test_a_call_that_kills_its_workers_of_dask_is_given_up(dask: DaskPrograms) -> None:
    with open_cluster(dask.url) as cluster:
        with pytest.raises(Unavailable, match="died"):
            cluster.executor.submit(calls.die).result(PATIENCE)
        assert cluster.executor.submit(calls.add, 1).result(PATIENCE) == 1


_KILLED_COMMAND = """
import os, signal, time
from cafcat.clusters.local import LocalExecutor
if __name__ == "__main__":
    executor = LocalExecutor(2)
    print(executor.submit(os.getpid).result(), flush=True)
    executor.submit(time.sleep, 1)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_processes_end_after_the_command_was_killed(tmp_path: Path) -> None:
    script = tmp_path / "command.py"
    script.write_text(_KILLED_COMMAND)
    with (tmp_path / "printed").open("w") as printed:  # the processes would keep a pipe open
        done = subprocess.run([sys.executable, script], stdout=printed, check=False)
    assert done.returncode == -signal.SIGKILL
    worker = int((tmp_path / "printed").read_text())
    until = time.monotonic() + 30
    while time.monotonic() < until and _runs(worker):
        time.sleep(0.05)
    assert not _runs(worker)


def _runs(process: int) -> bool:
    """Return True if a process runs. A zombie, which nobody waits for in some containers, does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
