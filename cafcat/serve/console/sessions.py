"""Sessions of the console: a cookie that is signed with the secret of the visitor's access key.

No server stores sessions, so every process and every server with the same catalog accepts the cookie. A key that is
revoked or has expired is not found any more, and that ends its sessions.
"""

import hmac
import time
from collections.abc import Callable
from typing import Final

from cafcat.serve.s3.keys import Key

__all__ = ["COOKIE", "SESSION_SECONDS", "key_of", "new_token"]

COOKIE: Final = "cafcat_session"
SESSION_SECONDS: Final = 12 * 3600
"""How long a session lasts, in seconds."""
_PURPOSE: Final = "session of the cafcat console"
"""Part of what is signed, so that no signature of another protocol is valid here."""


def new_token(access_key_id: str, key: Key) -> str:
    """Return the value of the cookie for a session that begins now."""
    expires = int(time.time()) + SESSION_SECONDS
    return f"{access_key_id}.{expires}.{_signature(access_key_id, expires, key)}"


def key_of(token: str, find: Callable[[str], Key | None]) -> tuple[str, Key] | None:
    """Return the access key of a session, with its name; None if the session is not valid, or not any more.

    Args:
        token: Value of the cookie.
        find: Returns the access key with a name, or None.
    """
    access_key_id, _, rest = token.partition(".")
    end, _, signature = rest.partition(".")
    if not (end.isascii() and end.isdigit() and len(end) < 12) or int(end) <= time.time():
        return None
    key = find(access_key_id)
    if key is None or not hmac.compare_digest(
        _signature(access_key_id, int(end), key).encode(), signature.encode()
    ):
        return None
    return access_key_id, key


def _signature(access_key_id: str, expires: int, key: Key) -> str:
    message = f"{_PURPOSE}\n{access_key_id}\n{expires}"
    return hmac.digest(key.secret.encode(), message.encode(), "sha256").hex()
