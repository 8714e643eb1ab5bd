"""Checks the signatures of requests: AWS Signature Version 4, with all of the request in one piece."""

import hashlib
import hmac
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from cafcat.serve.s3.claims import ALGORITHM, UNSIGNED, Claim, claim_of
from cafcat.serve.s3.errors import S3Error
from cafcat.serve.s3.keys import Key
from cafcat.serve.s3.request import S3Request

__all__ = ["authenticate"]

_EMPTY: Final = hashlib.sha256(b"").hexdigest()
_SHA256: Final = re.compile("[0-9a-f]{64}")
_PLAIN_PATH: Final = re.compile(rb"[A-Za-z0-9/_.~-]*")
"""A path that is the same after decoding and encoding."""
_SIGNATURE: Final = b"X-Amz-Signature"


def authenticate(request: S3Request, region: str, find: Callable[[str], Key | None]) -> Key | None:
    """Return the access key that signed a request; None if the request is not signed.

    Args:
        request: The request.
        region: Region that clients have to sign.
        find: Returns the access key with a name, or None.

    Raises:
        S3Error: The request is signed, but not as it must be.
    """
    claim = claim_of(request, region)
    if claim is None:
        return None
    key = find(claim.access_key_id)
    if key is None:
        message = "The AWS Access Key Id you provided does not exist in our records."
        raise S3Error("InvalidAccessKeyId", message, {"AWSAccessKeyId": claim.access_key_id})
    canonical = _canonical_request(request, claim)
    to_sign = "\n".join((ALGORITHM, claim.time, claim.scope, hashlib.sha256(canonical).hexdigest()))
    expected = _signature(key.secret, claim.scope, to_sign)
    if not hmac.compare_digest(expected.encode(), claim.signature.encode()):
        raise _mismatch(claim, canonical, to_sign)
    _check_payload(claim.payload)
    return key


def _canonical_request(request: S3Request, claim: Claim) -> bytes:
    """Return the text whose checksum is signed. Names and values are decoded, and encoded again in one way."""
    raw_path = request.raw_path
    path = raw_path.decode() if _PLAIN_PATH.fullmatch(raw_path) else quote(unquote_to_bytes(raw_path), safe="/~")
    query = _canonical_query(request) if request.pairs else ""
    values = request.headers
    headers = "".join([f"{name}:{' '.join(values.get(name, '').split())}\n" for name in claim.signed_headers])
    names = ";".join(claim.signed_headers)
    text = "\n".join((request.method, path or "/", query, headers, names, claim.payload))
    return text.encode("latin-1", "replace")


def _canonical_query(request: S3Request) -> str:
    pairs = sorted(
        (quote(name, safe="~"), quote(value, safe="~")) for name, value in request.pairs if name != _SIGNATURE
    )
    return "&".join([f"{name}={value}" for name, value in pairs])


def _signature(secret: str, scope: str, to_sign: str) -> str:
    return hmac.digest(_signing_key(secret, scope), to_sign.encode(), "sha256").hex()


@lru_cache(maxsize=256)
def _signing_key(secret: str, scope: str) -> bytes:
    """Return the key that a secret gives for a day, a region and a service: the same for nearly all requests."""
    key = b"AWS4" + secret.encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def _check_payload(payload: str) -> None:
    """Check that an empty body was signed: requests that read have no other body."""
    if payload in (UNSIGNED, _EMPTY):
        return
    if _SHA256.fullmatch(payload):
        message = "The provided 'x-amz-content-sha256' header does not match what was computed."
        raise S3Error("XAmzContentSHA256Mismatch", message)
    message = "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, or a valid sha256 value."
    raise S3Error("InvalidArgument", message)


def _mismatch(claim: Claim, canonical: bytes, to_sign: str) -> S3Error:
    """Return the error with both texts of the calculation, which the client can compare with its own."""
    message = (
        "The request signature we calculated does not match the signature you provided. "
        "Check your key and signing method."
    )
    details = {
        "AWSAccessKeyId": claim.access_key_id,
        "StringToSign": to_sign,
        "SignatureProvided": claim.signature,
        "CanonicalRequest": canonical.decode("utf-8", "replace"),
    }
    return S3Error("SignatureDoesNotMatch", message, details)
