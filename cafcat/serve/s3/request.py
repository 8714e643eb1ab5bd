"""A request of the S3 protocol: its headers, its parameters, its bucket and its key."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from cafcat.model import MAX_PATH_BYTES
from cafcat.serve.s3.errors import S3Error

__all__ = ["S3Request"]

_MAX_URL_BYTES: Final = 16 << 10
"""Longest path and query together, in bytes: a key of 2,048 bytes in percent-encoding, and a presigned query."""


class S3Request:
    """One request. Nothing in it is trusted.

    Attributes:
        method: Name of the method.
        raw_path: The path as the client sent it, in percent-encoding.
        headers: Values by name in lower case, without spaces around them. Values of one name are joined by ",".
        pairs: Names and values of the parameters in the query, decoded from percent-encoding.
        time: When the request arrived, in seconds since 1970.
    """

    def __init__(
        self, method: str, raw_path: bytes, query: bytes, headers: Sequence[tuple[bytes, bytes]], time: float
    ) -> None:
        """Read the parts of a request.

        Args:
            method: Name of the method.
            raw_path: The path, in percent-encoding.
            query: The query, in percent-encoding, without "?".
            headers: Names and values of the headers.
            time: When the request arrived, in seconds since 1970.

        Raises:
            S3Error: The URL is too long.
        """
        if len(raw_path) + len(query) > _MAX_URL_BYTES:
            raise S3Error("KeyTooLongError", "Your key is too long.")
        self.method = method
        self.raw_path = raw_path
        self.time = time
        self.headers = _headers(headers)
        self.pairs = _pairs(query) if query else []

    @classmethod
    def of_scope(cls, scope: Mapping[str, Any], time: float) -> "S3Request":
        """Return the request of an ASGI application.

        Args:
            scope: Scope of the request, as ASGI defines it.
            time: When the request arrived, in seconds since 1970.

        Raises:
            S3Error: The URL is too long.
        """
        raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        return cls(scope["method"], raw_path, scope.get("query_string", b""), scope.get("headers", ()), time)

    @property
    def host(self) -> str:
        """Value of the header Host."""
        return self.headers.get("host", "")

    @cached_property
    def parameters(self) -> dict[str, str]:
        """The parameters of the query. Of several with the same name, the first one counts.

        Raises:
            S3Error: A name or value is not UTF-8, or has NUL.
        """
        parameters: dict[str, str] = {}
        for name, value in self.pairs:
            parameters.setdefault(_text(name), _text(value))
        return parameters

    def target(self, domain: str | None) -> tuple[str, str]:
        """Return the name of the bucket and the key; "" for a request without them.

        Args:
            domain: Host name of the server; requests to `BUCKET.domain` have the bucket in the host name.

        Raises:
            S3Error: The path is not UTF-8, has NUL, or is longer than any key.
        """
        path = _text(unquote_to_bytes(self.raw_path)).removeprefix("/")
        bucket = _bucket_of_host(self.host, domain)
        if bucket is None:
            bucket, _, path = path.partition("/")
        if len(path.encode()) > MAX_PATH_BYTES:
            raise S3Error("KeyTooLongError", "Your key is too long.", {"MaxSizeAllowed": str(MAX_PATH_BYTES)})
        return bucket, path


def _headers(raw: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in raw:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1").strip()
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return headers


def _pairs(query: bytes) -> list[tuple[bytes, bytes]]:
    pairs = []
    for part in query.split(b"&"):
        if part:
            name, _, value = part.replace(b"+", b" ").partition(b"=")
            pairs.append((unquote_to_bytes(name), unquote_to_bytes(value)))
    return pairs


def _text(data: bytes) -> str:
    """Return a name as text. Python's decoder refuses overlong forms and surrogates."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise S3Error("InvalidURI", "Couldn't parse the specified URI.")
    return text


def _bucket_of_host(host: str, domain: str | None) -> str | None:
    """Return the bucket that a host name has in front of the domain; None if the bucket is in the path."""
    if domain is None:
        return None
    name = host.rsplit(":", 1)[0] if host.rpartition(":")[2].isdigit() else host
    suffix = f".{domain}".lower()
    return name[: -len(suffix)] if name.lower().endswith(suffix) and len(name) > len(suffix) else None
