"""Who visits the console: the owner of an access key, a user of a reverse proxy, or anybody for public folders."""

import ipaddress
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from cafcat.packed_files import PackedFiles
from cafcat.serve.console.sessions import COOKIE, key_of
from cafcat.serve.options import ServeOptions, network_of
from cafcat.serve.s3.keys import KeyRing
from cafcat.serve.s3.visible import Visible

__all__ = ["Visitor", "Visitors"]

_EVERYTHING: Final = ""
"""The folder that has all files."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """A visitor who may see some files at least.

    Attributes:
        name: Name of the access key, or of the proxy's user; None for a visitor without a login.
        visible: The files that the visitor may see.
        can_log_out: True if the console itself has checked an access key.
    """

    name: str | None
    visible: Visible
    can_log_out: bool = False

    @property
    def sees_all(self) -> bool:
        """True if the visitor may see all files, and so the pages about the whole catalog."""
        return _EVERYTHING in self.visible


class Visitors:
    """Finds out who sends a request.

    Attributes:
        keys: Finds access keys.
    """

    def __init__(self, repository: PackedFiles, options: ServeOptions) -> None:
        """Create the object.

        Args:
            repository: Has the access keys.
            options: How files are served. They were checked.
        """
        self.keys = KeyRing(repository.session, options.s3.key_seconds)
        self._public = tuple(options.s3.public_folders())
        self._user_header = options.user_header
        self._proxies = [network_of(address) for address in options.trusted_proxies]

    def find(self, request: Request) -> Visitor | None:
        """Return the visitor; None if the request has no valid login, and there are no public folders.

        This may query the catalog for an access key.
        """
        user = request.headers.get(self._user_header, "").strip() if self._user_header else ""
        if user and self.is_from_proxy(request):
            return Visitor(user, Visible([_EVERYTHING]))
        token = request.cookies.get(COOKIE)
        found = None if token is None else key_of(token, self.keys.find)
        if found is not None:
            access_key_id, key = found
            return Visitor(access_key_id, Visible([*self._public, key.prefix]), can_log_out=True)
        return Visitor(None, Visible(self._public)) if self._public else None

    def is_from_proxy(self, request: Request) -> bool:
        """Return True if the connection comes from a trusted proxy."""
        return request.client is not None and self._is_trusted(request.client.host)

    def address(self, request: Request) -> str:
        """Return the address of the client; behind trusted proxies, the one that the last of them reports."""
        hops = [request.client.host if request.client is not None else ""]
        forwarded = request.headers.get("x-forwarded-for", "").split(",")
        while self._is_trusted(hops[-1]) and forwarded and forwarded[-1].strip():
            hops.append(forwarded.pop().strip())
        return hops[-1]

    def is_encrypted(self, request: Request) -> bool:
        """Return True if the browser uses TLS, as far as this server or a trusted proxy can tell."""
        if self.is_from_proxy(request) and "x-forwarded-proto" in request.headers:
            return request.headers["x-forwarded-proto"].strip().lower() == "https"
        return request.url.scheme == "https"

    def _is_trusted(self, address: str) -> bool:
        try:
            parsed = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(parsed, "ipv4_mapped", None)
        return any((mapped or parsed) in network for network in self._proxies)
