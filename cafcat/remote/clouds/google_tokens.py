"""Finds credentials for Google Cloud Storage with the package google-auth."""

import logging
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from threading import RLock
from typing import Any, Final
from urllib.parse import urlencode

from cafcat.errors import NotInstalled
from cafcat.remote.clouds.access import CloudAccess
from cafcat.remote.clouds.http import Request
from cafcat.remote.errors import denied, unreachable
from cafcat.support.forking import renew_after_fork

__all__ = ["EMULATOR", "GoogleTokens"]

EMULATOR: Final = "STORAGE_EMULATOR_HOST"
"""Variable with the address of an emulator, as Google's own libraries read it. Emulators get no credentials."""
_SCOPE: Final = "https://www.googleapis.com/auth/devstorage.read_write"


class GoogleTokens:
    """Adds an OAuth token to each request, and renews it. Threads may share it."""

    def __init__(self, access: CloudAccess, where: str) -> None:
        """Prepare the search for credentials, which happens at the first request.

        Args:
            access: Options of the connection.
            where: URL of the bucket, for messages.
        """
        self.is_anonymous = access.is_anonymous or bool(os.environ.get(EMULATOR) and not access.endpoint_url)
        self._where = where
        self._lock = RLock()
        renew_after_fork(self)
        self._credentials: Any = None

    def signed(self, request: Request) -> tuple[str, Mapping[str, str]]:
        """Return the URL of a request, and its headers with a token."""
        url = f"{request.url}?{urlencode(request.query)}" if request.query else request.url
        headers = {"user-agent": "cafcat", **request.headers}
        if not self.is_anonymous:
            headers["authorization"] = f"Bearer {self.token()['token']}"
        return url, headers

    def token(self) -> dict[str, Any]:
        """Return a token and the time of its end, as obstore wants them.

        Raises:
            AccessDenied: There are no credentials, or Google refuses them.
            NotInstalled: google-auth is not installed.
            ServerFailed: The server that gives tokens does not answer.
        """
        try:
            from google.auth import exceptions
        except ImportError as error:
            message = f"credentials for {self._where} need google-auth, which is not installed"
            raise NotInstalled(message, hint=NotInstalled.remedy("gs")) from error
        logging.getLogger("google").addHandler(logging.NullHandler())  # the errors below have the messages
        with self._lock:
            try:
                found = self._renewed()
            except exceptions.TransportError as error:
                raise unreachable(error, "get a token for", self._where) from error
            except exceptions.GoogleAuthError as error:
                reason = f"no usable credentials were found: {str(error).partition(' To set up')[0].rstrip('.')}"
                raise denied(reason, "use", self._where) from None
        expiry = found.expiry and found.expiry.replace(tzinfo=UTC)
        return {"token": found.token, "expires_at": expiry or datetime.max.replace(tzinfo=UTC)}

    def after_fork(self) -> None:
        """Forget the lock, which another thread of the parent may have held, in a forked process."""
        self._lock = RLock()

    def _renewed(self) -> Any:
        import google.auth
        from google.auth.transport.urllib3 import Request as AuthRequest
        from urllib3 import PoolManager

        if self._credentials is None:
            self._credentials, _ = google.auth.default(scopes=[_SCOPE])
        if not self._credentials.valid:
            transport: Any = AuthRequest  # has no types
            self._credentials.refresh(transport(PoolManager()))
        return self._credentials
