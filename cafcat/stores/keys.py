"""Keys of objects: which keys cafcat allows in every kind of store, and the meaning of their prefixes."""

import re
from uuid import uuid4

from cafcat.errors import InvalidInput

__all__ = [
    "BACKUP_PREFIX",
    "JOURNAL_PREFIX",
    "MARKER_PREFIX",
    "PARTIAL_SUFFIX",
    "check_key",
    "is_chunk_key",
    "is_key",
    "is_probe_key",
    "probe_key",
]

JOURNAL_PREFIX = "journal/"
BACKUP_PREFIX = "backups/"
MARKER_PREFIX = "catalogs/"
"""Prefixes of the objects that cafcat stores beside the chunks: journal records, backups, markers of catalogs."""

PARTIAL_SUFFIX = ".partial"
"""Suffix of temporary files: a folder store writes an unfinished upload to a file named after its key and this."""

_PROBE_KEY = re.compile(r"cafcat-probe-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)
_MAX_KEY_BYTES = 1024
"""Longest key in bytes: the limit of S3."""
_MAX_PART_BYTES = 255 - len(PARTIAL_SUFFIX)
"""Longest part of a key between slashes, in bytes: with PARTIAL_SUFFIX, the limit of file systems (NAME_MAX)."""
_NO_PARTS = frozenset((b"", b".", b".."))
"""Parts between slashes that make a key invalid."""


def check_key(key: str) -> str:
    """Return the key, if cafcat allows it in every kind of store.

    Raises:
        InvalidInput: The key is empty or too long, has a part between slashes that is empty, "." or "..", is not
            valid UTF-8, contains a NUL byte, or ends in PARTIAL_SUFFIX.
    """
    try:
        parts = key.encode().split(b"/")
    except UnicodeEncodeError:
        raise InvalidInput(f"bad object key {key!r}: it is not valid UTF-8") from None
    problem = None
    if len(key.encode()) > _MAX_KEY_BYTES or max(map(len, parts)) > _MAX_PART_BYTES:
        problem = f"it has more than {_MAX_KEY_BYTES:,} bytes, or more than {_MAX_PART_BYTES} between slashes"
    elif not _NO_PARTS.isdisjoint(parts):
        problem = 'a part between slashes is empty, "." or ".."'
    elif "\0" in key:
        problem = "it contains a NUL byte"
    elif key.endswith(PARTIAL_SUFFIX):
        problem = f"the suffix {PARTIAL_SUFFIX} is reserved for unfinished uploads"
    if problem is not None:
        raise InvalidInput(f"bad object key {key!r}: {problem}")
    return key


def is_key(key: str) -> bool:
    """Return True if `check_key` allows a key. Objects of other programs can have other keys."""
    try:
        check_key(key)
    except InvalidInput:
        return False
    return True


def is_chunk_key(key: str) -> bool:
    """Return False for the keys of journal records, backups, markers and probes; True for all others."""
    return not key.startswith((JOURNAL_PREFIX, BACKUP_PREFIX, MARKER_PREFIX)) and not is_probe_key(key)


def probe_key() -> str:
    """Return a fresh key for the tiny object with which `DistinctStores` tests whether two stores are one place."""
    return f"cafcat-probe-{uuid4()}"


def is_probe_key(key: str) -> bool:
    """Return True if the key has the form of a `probe_key`. Every process is allowed to remove such an object."""
    return _PROBE_KEY.fullmatch(key) is not None
