"""Access keys: made, listed and revoked by `cafcat keys`, and found by the S3 server."""

import base64
import logging
import os
import re
import secrets
import time
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Final, NamedTuple

from cafcat.catalog.access_keys import AccessKey
from cafcat.errors import Corrupt, InvalidInput, NotFound
from cafcat.serve.s3.sealing import Seal, has_seal, seal_of
from cafcat.session import Session
from cafcat.support.paths import folder_of, is_text

__all__ = ["Key", "KeyRing", "NewKey", "add_key", "has_keys_of_other_homes", "key_named", "revoke_key"]

_log = logging.getLogger("cafcat")

_ID_PREFIX: Final = "CAFCAT"
_ID_LENGTH: Final = 20
_ID: Final = re.compile(f"{_ID_PREFIX}[A-Z2-7]{{{_ID_LENGTH - len(_ID_PREFIX)}}}")
_ID_BYTES: Final = 10
_SECRET_BYTES: Final = 30
_MAX_SECONDS: Final = 100 * 365 * 86_400
_CACHED_KEYS: Final = 10_000
"""Most keys that a KeyRing remembers."""


@dataclass(frozen=True, slots=True)
class NewKey:
    """A new access key, with its secret, which is not shown again.

    Attributes:
        access_key_id: Name of the key.
        secret_access_key: The secret with which its user signs requests.
        prefix: Folder that the key can read, with "/" at its end; "" for all files.
        expires_at: From when on the key is refused: ISO 8601, UTC; None for never.
    """

    access_key_id: str
    secret_access_key: str
    prefix: str
    expires_at: str | None


def add_key(session: Session, prefix: str = ".", seconds: int | None = None) -> NewKey:
    """Make an access key, and store its sealed secret in the catalog.

    Args:
        session: The session.
        prefix: Folder of the catalog that the key can read; "." for all files.
        seconds: How long the key is valid, in seconds; None for no end.

    Raises:
        InvalidInput: The name of the folder is empty, or no folder can have it. Or the time is not from 1 second to
            100 years.
        NotInstalled: The package cryptography is missing.
    """
    if not prefix:
        raise InvalidInput("the name of the folder is empty", hint="write . for all files")
    if not is_text(prefix):
        raise InvalidInput("no folder of the catalog can have this name", path=prefix)
    if seconds is not None and not 0 < seconds <= _MAX_SECONDS:
        raise InvalidInput("--expires must be from 1 second to 100 years")
    folder = folder_of(prefix)
    access_key_id, secret = _new_id(), _new_secret()
    sealed = seal_of(session.settings.home, create=True).seal(secret, access_key_id, folder)
    expires_at = session.catalog.access_keys.add(access_key_id, folder, sealed, seconds)
    return NewKey(access_key_id, secret, folder, expires_at)


def has_keys_of_other_homes(session: Session) -> bool:
    """Return True if the catalog has access keys, and this home has no sealing key: another home sealed them."""
    return not has_seal(session.settings.home) and bool(session.catalog.access_keys.all())


def _new_id() -> str:
    """Return a random name of 20 capital letters and digits, as programs expect it of S3."""
    text = base64.b32encode(os.urandom(_ID_BYTES)).decode()
    return (_ID_PREFIX + text)[:_ID_LENGTH]


def _new_secret() -> str:
    """Return a random secret without "-" at its start: programs take a value that begins so for an option."""
    while (secret := secrets.token_urlsafe(_SECRET_BYTES)).startswith("-"):
        pass
    return secret


def key_named(session: Session, access_key_id: str) -> AccessKey:
    """Return the access key of this name, valid or not. Raises NotFound if the catalog has no such key."""
    key = session.catalog.access_keys.get(access_key_id) if is_text(access_key_id) else None
    if key is None:
        raise _no_such_key(access_key_id)
    return key


def revoke_key(session: Session, access_key_id: str) -> None:
    """Revoke an access key for ever. Revoking it again changes nothing.

    Raises:
        NotFound: The catalog has no such key.
    """
    if not is_text(access_key_id) or not session.catalog.access_keys.revoke(access_key_id):
        raise _no_such_key(access_key_id)


def _no_such_key(access_key_id: str) -> NotFound:
    return NotFound(f"the catalog has no access key {access_key_id!r}", hint="`cafcat keys list` shows all keys")


class Key(NamedTuple):
    """A valid access key.

    Attributes:
        secret: The secret with which its user signs requests.
        prefix: Folder that the key can read, with "/" at its end; "" for all files.
    """

    secret: str
    prefix: str


class KeyRing:
    """Finds access keys by name, and remembers each of them for some seconds. Threads may share a ring."""

    def __init__(self, session: Session, seconds: float) -> None:
        """Create a ring that has no key yet.

        Args:
            session: The session.
            seconds: How long a key is remembered: how long a revoked key is still accepted.
        """
        self._session = session
        self._seconds = seconds
        self._known: dict[str, tuple[float, Key]] = {}
        self._lock = Lock()

    @cached_property
    def _seal(self) -> Seal:
        return seal_of(self._session.settings.home)

    def find(self, access_key_id: str) -> Key | None:
        """Return a valid key; None if it is unknown, expired or revoked, or cannot be unsealed.

        It cannot be unsealed without a sealing key, or if it was sealed with another one. The log names the reason.

        Raises:
            NotInstalled: The package cryptography is missing.
            CatalogUnavailable: The database does not answer.
        """
        known = self.remembered(access_key_id)
        if known is not None:
            return known
        key = self._look_up(access_key_id)
        if key is not None:
            with self._lock:
                if len(self._known) >= _CACHED_KEYS:
                    self._known.clear()
                self._known[access_key_id] = (time.monotonic() + self._seconds, key)
        return key

    def remembered(self, access_key_id: str) -> Key | None:
        """Return a key that `find` has returned some seconds ago; None if it would have to be looked up."""
        known = self._known.get(access_key_id)
        return known[1] if known is not None and time.monotonic() < known[0] else None

    def _look_up(self, access_key_id: str) -> Key | None:
        if not _ID.fullmatch(access_key_id):
            return None  # without a query
        row = self._session.catalog.access_keys.find(access_key_id)
        if row is None:
            return None
        prefix, sealed = row
        try:
            return Key(self._seal.unseal(sealed, access_key_id, prefix), prefix)
        except (Corrupt, NotFound, InvalidInput) as error:
            _log.warning("access key %s is refused: %s", access_key_id, error)
            return None
