"""Which keys objects may have: names that every kind of store can take."""

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
    "is_probe_key",
    "probe_key",
]

JOURNAL_PREFIX = "journal/"
BACKUP_PREFIX = "backups/"
MARKER_PREFIX = "catalogs/"
"""What cafcat keeps beside the chunks."""

PARTIAL_SUFFIX = ".partial"
"""Objects being written are kept under their key with this behind it, where a store has no better way."""

_PROBE_KEY = re.compile(r"cafcat-probe-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)
_MAX_KEY_BYTES = 1024
"""The limit of S3."""
_MAX_PART_BYTES = 255 - len(PARTIAL_SUFFIX)
"""The limit of file systems (NAME_MAX)."""


def check_key(key: str) -> str:
    """The key itself. Raises InvalidInput for one that is empty or too long, that has empty, "." or ".."
    parts between its slashes, or that ends as the temporary names do."""
    problem = _problem(key)
    if problem:
        raise InvalidInput(f"bad object key {key!r}: {problem}")
    return key


def is_chunk_key(key: str) -> bool:
    """False for what is kept beside the chunks."""
    return not key.startswith((JOURNAL_PREFIX, BACKUP_PREFIX, MARKER_PREFIX)) and not is_probe_key(key)


def probe_key() -> str:
    """Return a fresh key for a tiny object that is removed at once: see cafcat.stores.distinct."""
    return f"cafcat-probe-{uuid4()}"


def is_probe_key(key: str) -> bool:
    """Return whether a key is one of probe_key. An object of that key may be removed at any time."""
    return _PROBE_KEY.fullmatch(key) is not None


def _problem(key: str) -> str | None:
    try:
        size_bytes = len(key.encode())
        longest = max(len(part.encode()) for part in key.split("/"))
    except UnicodeEncodeError:
        return "not valid UTF-8"
    if size_bytes > _MAX_KEY_BYTES or longest > _MAX_PART_BYTES:
        return f"more than {_MAX_KEY_BYTES:,} bytes, or {_MAX_PART_BYTES} between slashes"
    if any(part in ("", ".", "..") for part in key.split("/")):
        return 'a part between slashes is empty, "." or ".."'
    if "\0" in key:
        return "it contains a NUL byte"
    return f"{PARTIAL_SUFFIX} is for objects being written" if key.endswith(PARTIAL_SUFFIX) else None
