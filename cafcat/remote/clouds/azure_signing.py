"""Signs requests to Azure Blob Storage: with the account's key, a shared access signature, or a token.

The signature of requests with a key is in "Authorize with Shared Key" of Azure Storage's REST reference.
"""

import base64
import hashlib
import hmac
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import formatdate
from threading import RLock
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from cafcat.errors import InvalidInput, NotInstalled
from cafcat.remote.clouds.access import AzureSettings
from cafcat.remote.clouds.http import Request
from cafcat.remote.errors import denied
from cafcat.support.forking import renew_after_fork

__all__ = ["VERSION", "AzureSigner"]

VERSION: Final = "2021-12-02"
"""Version of the service that requests ask for."""
_SCOPE: Final = "https://storage.azure.com/.default"
_SIGNED: Final = (
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
)
"""Standard headers in the order in which they are signed."""
_RENEW_SECONDS: Final = 300
"""How long before its end a token is renewed, in seconds."""


class AzureSigner:
    """Adds credentials to requests. Threads may share it."""

    def __init__(self, settings: AzureSettings, where: str, *, is_anonymous: bool) -> None:
        """Choose the kind of credentials: key, shared access signature, login; none if `is_anonymous`.

        Args:
            settings: Account and secrets.
            where: URL of the container, for messages.
            is_anonymous: True to send no credentials.
        """
        self._settings = settings
        self._where = where
        self._is_anonymous = is_anonymous
        self._lock = RLock()
        renew_after_fork(self)
        self._credential: Any = None
        self._token: Any = None

    def signed(self, request: Request) -> tuple[str, Mapping[str, str]]:
        """Return the whole URL of a request, and its headers with credentials."""
        query = urlencode(request.query, quote_via=quote)
        headers = {"x-ms-version": VERSION, "x-ms-date": formatdate(usegmt=True), "user-agent": "cafcat"}
        headers |= request.headers
        if request.method == "PUT":
            headers["content-length"] = str(len(request.body or b""))
        if self._is_anonymous:
            del headers["x-ms-date"]
        elif self._settings.key:
            headers["authorization"] = self._by_key(request, headers)
        elif self._settings.sas:
            query = "&".join(part for part in (query, self._settings.sas) if part)
        else:
            headers["authorization"] = f"Bearer {self.token()['token']}"
        return f"{request.url}?{query}" if query else request.url, headers

    def token(self) -> dict[str, Any]:
        """Return a token of a login and the time of its end, as obstore wants them.

        Raises:
            AccessDenied: There is no login, or Azure refuses it.
            NotInstalled: azure-identity is not installed.
        """
        try:
            from azure.core.exceptions import ClientAuthenticationError
            from azure.identity import CredentialUnavailableError, DefaultAzureCredential
        except ImportError as error:
            message = (
                f"{self._where} needs AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN, or the package azure-identity"
            )
            raise NotInstalled(
                message, hint=f"set one of these variables, or: {NotInstalled.remedy('az')}"
            ) from error
        logging.getLogger("azure").addHandler(logging.NullHandler())  # the error below has the message
        with self._lock:
            self._credential = self._credential or DefaultAzureCredential()
            try:
                if self._token is None or self._token.expires_on < datetime.now(UTC).timestamp() + _RENEW_SECONDS:
                    self._token = self._credential.get_token(_SCOPE)
            except (ClientAuthenticationError, CredentialUnavailableError) as error:
                reason = f"no usable credentials were found: {str(error).partition(chr(10))[0].rstrip('.')}"
                raise denied(reason, "use", self._where) from None
            return {"token": self._token.token, "expires_at": datetime.fromtimestamp(self._token.expires_on, UTC)}

    def after_fork(self) -> None:
        """Forget the lock, which another thread of the parent may have held, and the login, in a forked process."""
        self._lock, self._credential = RLock(), None

    def _by_key(self, request: Request, headers: Mapping[str, str]) -> str:
        account, key = self._settings.account, self._settings.key or ""
        standard = [headers.get(name, "") for name in _SIGNED]
        standard[2] = standard[2].removeprefix("0") or ""  # an empty body has no length here
        own = [f"{name}:{headers[name]}" for name in sorted(headers) if name.startswith("x-ms-")]
        resource = [f"/{account}{urlsplit(request.url).path}"]
        resource += [f"{name}:{value}" for name, value in sorted(request.query.items())]
        text = "\n".join([request.method, *standard, *own, *resource])
        try:
            secret = base64.b64decode(key, validate=True)
        except ValueError:
            raise InvalidInput("AZURE_STORAGE_KEY is not valid: an access key is base64") from None
        signature = base64.b64encode(hmac.new(secret, text.encode(), hashlib.sha256).digest()).decode()
        return f"SharedKey {account}:{signature}"
