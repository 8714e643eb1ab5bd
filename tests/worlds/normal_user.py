"""Run code of tests as a user who is not root, because file permissions do not apply to root."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_NOBODY = 65534


@contextmanager
def as_normal_user() -> Iterator[None]:
    """Drop the privileges of root meanwhile, so that file permissions apply."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
