"""What backups are called: `backups/20261121T164500.123456Z-<uuid>.tar`, by name in order of time."""

import re
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from cafcat.stores.keys import BACKUP_PREFIX

__all__ = ["backup_key", "backup_time"]

_TIME: Final = "%Y%m%dT%H%M%S.%fZ"
_KEY: Final = re.compile(
    re.escape(BACKUP_PREFIX)
    + r"(\d{8}T\d{6}\.\d{6}Z)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\.tar",
    re.ASCII,
)


def backup_key(begun_at: datetime, uuid: UUID) -> str:
    """The key of a backup that was begun then."""
    return f"{BACKUP_PREFIX}{begun_at.astimezone(UTC).strftime(_TIME)}-{uuid}.tar"


def backup_time(key: str) -> str | None:
    """When a backup was begun, ISO 8601 in UTC; None if that is no key of one."""
    found = _KEY.fullmatch(key)
    try:
        begun_at = datetime.strptime(found[1], _TIME).replace(tzinfo=UTC) if found else None
    except ValueError:
        return None
    return None if begun_at is None else begun_at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
