"""Detection of dead lease owners, which returns True only for certain cases."""

import os
import subprocess
import sys

import pytest

from cafcat.catalog.chunks import owners
from cafcat.catalog.chunks.owners import is_dead, owner_name

NAME = (
    "import os; from cafcat.catalog.chunks.owners import owner_name; "
    "print(owner_name('run 7'), flush=True); input()"
)

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells")


@pytest.fixture
def other() -> "subprocess.Popen[str]":
    """Another process, which has printed its name."""
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", NAME], stdin=pipe, stdout=pipe, text=True)


def name_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


@linux
def test_a_process_is_alive_until_it_is_killed(other: "subprocess.Popen[str]") -> None:
    name = name_of(other)
    assert name.split(":")[1:2] == [str(other.pid)]
    assert not is_dead(name)
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert is_dead(name), "a killed process that was not reaped counts as alive"
    end(other)
    assert is_dead(name)


@linux
def test_a_process_id_that_is_used_again_is_another_process(other: "subprocess.Popen[str]") -> None:
    name = name_of(other)
    start, _, ticks = name.removesuffix("]").rpartition("/")
    assert is_dead(f"{start}/{int(ticks) - 1}]")
    end(other)


@linux
def test_owner_of_another_boot_or_container_is_not_dead(other: "subprocess.Popen[str]") -> None:
    name = name_of(other)
    end(other)
    start, _, rest = name.partition(" [")
    assert not is_dead(f"{start} [{'0' * 12}/{rest.partition('/')[2]}")
    assert is_dead(name)


@linux
def test_a_process_that_proc_hides_is_not_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "_started", lambda _: None)
    monkeypatch.setattr(owners.Path, "exists", lambda _: False)
    machine = owners._machine()
    assert not is_dead(f"host:{os.getpid()}:run 7 [{machine}/1]")
    assert not is_dead(f"host:1:run 7 [{machine}/1]")


@pytest.mark.parametrize(
    "name", [None, "", "host:1:run 7", "somebody", "host:1:run 7 [zz/1]", "host:x:run 7 [0/1]"]
)
def test_owner_with_another_form_of_name_is_not_dead(name: str | None) -> None:
    assert not is_dead(name)


def test_this_process_is_alive() -> None:
    assert not is_dead(owner_name("recover"))
    assert f":{os.getpid()}:recover" in owner_name("recover")
