"""Keys of backups: `backups/20261121T164500.123456Z-<uuid>.tar`. They sort by the begin of the backup."""

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
    """Return the key of a backup.

    Args:
        begun_at: Time when the backup began.
        uuid: Uuid of the backup.
    """
    return f"{BACKUP_PREFIX}{begun_at.astimezone(UTC).strftime(_TIME)}-{uuid}.tar"


def backup_time(key: str) -> str | None:
    """Return when a backup began, ISO 8601 in UTC; None if the key is not that of a backup."""
    found = _KEY.fullmatch(key)
    try:
        begun_at = datetime.strptime(found[1], _TIME).replace(tzinfo=UTC) if found else None
    except ValueError:
        return None
    return None if begun_at is None else begun_at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
