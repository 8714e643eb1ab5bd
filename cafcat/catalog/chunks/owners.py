"""Who has a lease, and whether that process is dead for certain.

A lease ends by itself, but a writer that was killed on this very machine need not be waited for: its name says
which process it was, and a process that is not there any more writes nothing.
"""

import hashlib
import os
import re
import socket
from functools import cache
from pathlib import Path
from typing import Final

__all__ = ["is_dead", "owner_name", "role_of"]

_OWNER: Final = re.compile(
    r"^.*:(?P<process>\d+):(?P<role>[^:]*) \[(?P<machine>[0-9a-f]+)/(?P<started>\d+)\]$", re.DOTALL
)


def owner_name(role: str) -> str:
    """ "host:4711:run 7 [5f2c9e01a3b4/88123]": host, process id, what it does; then, where the system tells, this
    boot of this machine and when the process started, in clock ticks since that."""
    name = f"{socket.gethostname()}:{os.getpid()}:{role}"
    started = _started(os.getpid())
    return name if started is None or not _machine() else f"{name} [{_machine()}/{started}]"


def role_of(owner: str | None) -> str:
    """What it does: "run 7". Empty for a name of another make."""
    found = _OWNER.match(owner or "")
    return (owner or "").rpartition(":")[2] if found is None else found["role"]


def is_dead(owner: str | None) -> bool:
    """True only if the process ran here, since this boot, where its number means what it means to us, and is gone.
    False where nobody can tell."""
    found = _OWNER.match(owner or "")
    if found is None or found["machine"] != _machine():
        return False
    process = int(found["process"])
    started = _started(process)
    return _is_gone(process) if started is None else started != found["started"]


def _is_gone(process: int) -> bool:
    """Where /proc shows nothing: it may be mounted so that it hides the processes of others (hidepid)."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return Path(f"/proc/{process}").exists()  # ours, and shown: it was killed and only waits to be noticed


@cache
def _machine() -> str:
    """This boot of this machine, and the space in which its process ids count (pid_namespaces(7)). Empty where the
    system does not tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        return hashlib.sha256(f"{boot} {os.readlink('/proc/self/ns/pid')}".encode()).hexdigest()[:12]
    except OSError:
        return ""


def _started(process: int) -> str | None:
    """When a process started (proc_pid_stat(5), field 22): two that had the same number differ in it. None for one
    that is gone, or was killed and only waits to be noticed."""
    try:
        status = Path(f"/proc/{process}/stat").read_bytes()
    except OSError:
        return None
    # The name of the program, field 2, is in parentheses and may have anything in it.
    fields = status.rpartition(b")")[2].split()
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()
