"""Signs requests as the documentation of AWS describes it, independently of the code under test."""

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import parse_qsl, quote, unquote_to_bytes

__all__ = ["EMPTY", "Signer"]

EMPTY = hashlib.sha256(b"").hexdigest()


class Signer:
    """Signs requests with one access key.

    Attributes:
        access_key_id: name of the key.
        secret: its secret.
        region, service: what the signature is for.
    """

    def __init__(self, access_key_id: str, secret: str, region: str = "us-east-1", service: str = "s3") -> None:
        self.access_key_id = access_key_id
        self.secret = secret
        self.region = region
        self.service = service

    def headers(
        self, method: str, target: str, headers: Mapping[str, str], seconds: float, payload: str = EMPTY
    ) -> dict[str, str]:
        """Return the headers of a request, with those of the signature.

        Args:
            method: of the request.
            target: path and query, in percent-encoding.
            headers: all other headers, with Host.
            seconds: when the request is signed, since 1970.
            payload: checksum of the body.
        """
        time = _time(seconds)
        given = {"x-amz-content-sha256": payload, "x-amz-date": time} | dict(headers)
        names = ";".join(sorted(name.lower() for name in given))
        path, _, query = target.partition("?")
        signature = self._signature(method, path, query, given, names, payload, time)
        credential = f"{self.access_key_id}/{self._scope(time)}"
        authorization = f"AWS4-HMAC-SHA256 Credential={credential},SignedHeaders={names},Signature={signature}"
        return given | {"Authorization": authorization}

    def presigned(self, target: str, host: str, seconds: float, expires: int | str = 3600) -> str:
        """Return path and query of a URL that is signed for a GET."""
        time = _time(seconds)
        path, _, query = target.partition("?")
        own = {
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
            "X-Amz-Credential": f"{self.access_key_id}/{self._scope(time)}",
            "X-Amz-Date": time,
            "X-Amz-Expires": str(expires),
            "X-Amz-SignedHeaders": "host",
        }
        added = "&".join(f"{name}={quote(value, safe='')}" for name, value in own.items())
        query = f"{query}&{added}" if query else added
        signature = self._signature("GET", path, query, {"host": host}, "host", "UNSIGNED-PAYLOAD", time)
        return f"{path}?{query}&X-Amz-Signature={signature}"

    def _scope(self, time: str) -> str:
        return f"{time[:8]}/{self.region}/{self.service}/aws4_request"

    def _signature(
        self, method: str, path: str, query: str, headers: Mapping[str, str], names: str, payload: str, time: str
    ) -> str:
        pairs = parse_qsl(query, keep_blank_values=True, errors="surrogateescape")
        encoded = sorted((_quoted(name), _quoted(value)) for name, value in pairs)
        lower = {name.lower(): value for name, value in headers.items()}
        lines = [method, _path(path), "&".join(f"{name}={value}" for name, value in encoded)]
        lines += [f"{name}:{lower[name].strip()}" for name in names.split(";")]
        canonical = "\n".join([*lines, "", names, payload])
        digest = hashlib.sha256(canonical.encode("utf-8", "surrogateescape")).hexdigest()
        text = "\n".join(["AWS4-HMAC-SHA256", time, self._scope(time), digest])
        key = ("AWS4" + self.secret).encode()
        for part in self._scope(time).split("/"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _path(path: str) -> str:
    """Return a path as it is signed: with its bytes encoded in one way."""
    return quote(unquote_to_bytes(path), safe="/-_.~")


def _quoted(text: str) -> str:
    return quote(text.encode("utf-8", "surrogateescape"), safe="-_.~")


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y%m%dT%H%M%SZ")
