"""The number of processors.

This is a module of its own, because a command in one process must not wait for the import of multiprocessing.
"""

import os
import sys

__all__ = ["processors"]


def processors() -> int:
    """Return the number of processors that this process may use; 1 if the path of Python is unknown.

    Without this path, no worker processes can be started.
    """
    if not sys.executable:
        return 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
