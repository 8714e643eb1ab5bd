"""Features that some S3 servers lack, and what cafcat does instead."""

import logging
from collections.abc import Mapping
from enum import StrEnum
from threading import RLock
from typing import Final

from cafcat.stores.kind import StoreContext

__all__ = ["REMEDIES", "ServerCheck", "ServerChecks"]


class ServerCheck(StrEnum):
    """A check that S3 servers can fail. Each docstring is the right behaviour. The catalog stores the values."""

    ENTITY_TAG = "entity_tag"
    """HEAD shows the entity tag of the completed upload."""
    CHECKSUM = "checksum"
    """HEAD shows the CRC-64/NVME of the object, if the server promised to store it."""
    PART_TAGS = "part_tags"
    """The entity tag of a part is the MD5 of its bytes."""
    LIST_UPLOADS = "list_uploads"
    """Unfinished uploads can be listed."""
    ABORT_UPLOADS = "abort_uploads"
    """Unfinished uploads can be aborted."""
    CONDITIONAL_WRITES = "conditional_writes"
    """A completion with `If-None-Match: *` never replaces an object."""


REMEDIES: Final[Mapping[ServerCheck, str]] = {
    ServerCheck.ENTITY_TAG: (
        "HEAD shows another entity tag than the upload had. The object was read back, and is right. Later objects "
        "are checked by size, by the MD5 of each part, and by their own MD5 where the server shows that"
    ),
    ServerCheck.CHECKSUM: (
        "HEAD does not show the object's CRC-64/NVME. The object was read back, and is right. Later objects are "
        "checked by entity tag and by the MD5 of each part"
    ),
    ServerCheck.PART_TAGS: (
        "the entity tags of parts are not the MD5 of their bytes. Every object is read back once after its upload"
    ),
    ServerCheck.LIST_UPLOADS: (
        "it cannot list unfinished uploads. cafcat does not look for them: remove old ones on the server itself"
    ),
    ServerCheck.ABORT_UPLOADS: (
        "it cannot abort uploads. Their parts stay on the server: remove old ones on the server itself"
    ),
    ServerCheck.CONDITIONAL_WRITES: (
        "it ignores If-None-Match. cafcat looks whether a key is free right before it completes an upload"
    ),
}
"""For each failed check: what the server does, and what cafcat or the user does about it."""


class ServerChecks:
    """The checks that the server of one store failed. cafcat warns about each of them once.

    Safe to share between threads.
    """

    def __init__(self, store_url: str, context: StoreContext) -> None:
        """Prepare the checks of a store. The failed checks are loaded at the first use.

        Args:
            store_url: URL of the store.
            context: Its `verdicts` load and store the failed checks; if None, they are forgotten when this process
                ends. Its `warn` is called with a message about each newly failed check; if None, the logger
                "cafcat" gets the message.
        """
        self._store_url = store_url
        self._verdicts = context.verdicts
        self._warn = context.warn or logging.getLogger("cafcat").warning
        self._known: set[ServerCheck] | None = None
        self._lock = RLock()

    def __contains__(self, check: ServerCheck) -> bool:
        """Return True if the server failed this check."""
        return check in self._failed

    @property
    def failed(self) -> frozenset[ServerCheck]:
        """The checks that the server failed: in this process, or in earlier ones if `verdicts` remembers them."""
        return frozenset(self._failed)

    @property
    def _failed(self) -> set[ServerCheck]:
        with self._lock:
            if self._known is None:
                names = set() if self._verdicts is None else set(self._verdicts.failed(self._store_url))
                # A later version of cafcat may have remembered checks that this version does not have.
                self._known = {check for check in ServerCheck if check.value in names}
            return self._known

    def fail(self, check: ServerCheck) -> None:
        """Remember a failed check. Warn about it, unless this or another process has remembered it already."""
        with self._lock:
            if check in self._failed:
                return
            self._failed.add(check)
            is_new = self._verdicts is None or self._verdicts.remember(self._store_url, check.value)
        if is_new:
            self._warn(f"the server of {self._store_url} fails the check {check.value}: {REMEDIES[check]}")
