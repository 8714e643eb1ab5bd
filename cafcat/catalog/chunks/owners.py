"""Names of the processes that hold leases, and the test whether such a process is certainly dead.

A lease expires by itself. Other processes need not wait for that if the owner was a process of this machine that
does not exist any more. Such an owner cannot write. The name of an owner identifies its process.
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
    """Return the name of this process as the owner of leases, such as "host:4711:run 7 [5f2c9e01a3b4/88123]".

    The first parts are host, process id and role. On systems with /proc, two parts follow: a hash of the current
    boot of this machine and of the process id namespace, and the start time of the process in clock ticks since the
    boot.

    Args:
        role: The task of the process, such as "run 7".
    """
    name = f"{socket.gethostname()}:{os.getpid()}:{role}"
    started = _started(os.getpid())
    return name if started is None or not _machine() else f"{name} [{_machine()}/{started}]"


def role_of(owner: str | None) -> str:
    """Return the role in an owner's name, such as "run 7"; "" without an owner."""
    found = _OWNER.match(owner or "")
    return (owner or "").rpartition(":")[2] if found is None else found["role"]


def is_dead(owner: str | None) -> bool:
    """Return True if an owner is certainly dead.

    Returns:
        True if the process does not exist any more, and its name shows the current boot of this machine and the
        process id namespace of this process. False in all other cases, also without an owner.
    """
    found = _OWNER.match(owner or "")
    if found is None or found["machine"] != _machine():
        return False
    process = int(found["process"])
    started = _started(process)
    return _is_gone(process) if started is None else started != found["started"]


def _is_gone(process: int) -> bool:
    """Return True if a process has ended, given that /proc does not show its start time. A zombie counts as ended.

    /proc may hide the processes of other users (mount option hidepid), so this sends signal 0 to the process.
    """
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    # The signal was accepted. If /proc shows the process without a start time, it is a zombie.
    return Path(f"/proc/{process}").exists()


@cache
def _machine() -> str:
    """Return a hash of this boot of this machine and of the process id namespace (pid_namespaces(7)).

    Returns:
        12 hexadecimal digits; "" on systems without /proc.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        return hashlib.sha256(f"{boot} {os.readlink('/proc/self/ns/pid')}".encode()).hexdigest()[:12]
    except OSError:
        return ""


def _started(process: int) -> str | None:
    """Return the start time of a process (proc_pid_stat(5), field 22), in clock ticks since the boot.

    Two processes that had the same process id differ in it.

    Returns:
        None if the process does not exist or is a zombie, or if /proc does not show it.
    """
    try:
        status = Path(f"/proc/{process}/stat").read_bytes()
    except OSError:
        return None
    # Field 2, the name of the program, is in parentheses and may contain any characters, even parentheses.
    fields = status.rpartition(b")")[2].split()
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()
