"""Reads from a request who claims to have signed it, what, and when: in a header, or in the query.

A URL with a signed query is called a presigned URL.

The form, the times and the region are checked here, with the answers of Amazon S3; the signature itself is not.
"""

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple

from cafcat.serve.s3.errors import S3Error
from cafcat.serve.s3.request import S3Request

__all__ = ["ALGORITHM", "QUERY_NAMES", "UNSIGNED", "Claim", "claim_of"]

ALGORITHM: Final = "AWS4-HMAC-SHA256"
"""Name of the only algorithm."""
UNSIGNED: Final = "UNSIGNED-PAYLOAD"
"""Stands for the checksum of a body that is not signed."""
_HEADER: Final = re.compile(
    rf"{ALGORITHM}\s+Credential=([^,\s]+)\s*,\s*SignedHeaders=([^,\s]+)\s*,\s*Signature=([^,\s]+)"
)
_TIME: Final = re.compile(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z", re.ASCII)
_SKEW_SECONDS: Final = 15 * 60
_MAX_EXPIRES: Final = 7 * 86_400
_HEADER_ERROR: Final = "AuthorizationHeaderMalformed"
_QUERY_ERROR: Final = "AuthorizationQueryParametersError"
_NO_NAMES: Final[frozenset[str]] = frozenset()
QUERY_NAMES: Final = (
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Signature",
    "X-Amz-Date",
    "X-Amz-SignedHeaders",
    "X-Amz-Expires",
)
"""Parameters of a presigned URL."""


class Claim(NamedTuple):
    """Who claims to have signed a request, what, and when.

    Attributes:
        access_key_id: Name of the access key.
        scope: Date, region and service, for which the signing key is derived.
        time: When the request was signed, in the form 20261124T100000Z.
        signed_headers: Names of the signed headers, in the order of the claim.
        signature: The signature that the client sent.
        payload: Checksum of the body, or UNSIGNED.
    """

    access_key_id: str
    scope: str
    time: str
    signed_headers: tuple[str, ...]
    signature: str
    payload: str


def claim_of(request: S3Request, region: str) -> Claim | None:
    """Return the claim of a request; None if it is not signed.

    Args:
        request: The request.
        region: Region that clients have to sign.

    Raises:
        S3Error: The claim is malformed, too old or too new, or for another region.
    """
    header = request.headers.get("authorization")
    names = {name.lower() for name in request.parameters} if request.pairs else _NO_NAMES
    in_query = not names.isdisjoint({"x-amz-algorithm", "x-amz-credential", "x-amz-signature"})
    if "awsaccesskeyid" in names:
        raise _other_algorithm()
    if header is None:
        return _of_query(request, region) if in_query else None
    if in_query:
        raise S3Error("InvalidArgument", "Only one auth mechanism allowed: the query or the Authorization header.")
    return _of_header(request, region, header)


def _other_algorithm() -> S3Error:
    message = "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256."
    return S3Error("InvalidRequest", message)


def _of_header(request: S3Request, region: str, header: str) -> Claim:
    if not header.startswith(ALGORITHM):
        raise _other_algorithm()
    found = _HEADER.fullmatch(header)
    if found is None:
        raise S3Error(_HEADER_ERROR, "The authorization header is malformed.")
    time = request.headers.get("x-amz-date", "")
    signed_at = _seconds(time)
    if signed_at is None:
        raise S3Error("AccessDenied", "AWS authentication requires a valid Date or x-amz-date header")
    payload = request.headers.get("x-amz-content-sha256")
    if payload is None:
        raise S3Error("InvalidRequest", "Missing required header for this request: x-amz-content-sha256")
    access_key_id, scope = _credential(found[1], time[:8], region, _HEADER_ERROR)
    signed = _signed_headers(request, found[2], _HEADER_ERROR)
    _check_token(request.headers.get("x-amz-security-token"))
    if abs(request.time - signed_at) > _SKEW_SECONDS:
        raise _skewed(request, time)
    return Claim(access_key_id, scope, time, signed, found[3], payload)


def _skewed(request: S3Request, time: str) -> S3Error:
    details = {"RequestTime": time, "ServerTime": _iso(request.time)}
    details["MaxAllowedSkewMilliseconds"] = str(_SKEW_SECONDS * 1000)
    message = "The difference between the request time and the current time is too large."
    return S3Error("RequestTimeTooSkewed", message, details)


def _of_query(request: S3Request, region: str) -> Claim:
    missing = [name for name in QUERY_NAMES if name not in request.parameters]
    if missing:
        names = ", ".join(QUERY_NAMES)
        raise S3Error(_QUERY_ERROR, f"Query-string authentication version 4 requires the {names} parameters.")
    algorithm, credential, signature, time, signed_headers, expires = map(
        request.parameters.__getitem__, QUERY_NAMES
    )
    if algorithm != ALGORITHM:
        raise S3Error(_QUERY_ERROR, f'X-Amz-Algorithm only supports "{ALGORITHM}"')
    access_key_id, scope = _credential(credential, time[:8], region, _QUERY_ERROR)
    signed = _signed_headers(request, signed_headers, _QUERY_ERROR)
    _check_token(request.parameters.get("X-Amz-Security-Token"))
    _check_validity(request, time, expires)
    payload = request.headers.get("x-amz-content-sha256", UNSIGNED)
    return Claim(access_key_id, scope, time, signed, signature, payload)


def _check_validity(request: S3Request, time: str, expires: str) -> None:
    signed_at = _seconds(time)
    if signed_at is None:
        raise S3Error(_QUERY_ERROR, "X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"")
    if not expires.isascii() or not expires.isdigit() or len(expires) > 9:
        raise S3Error(_QUERY_ERROR, "X-Amz-Expires should be a number")
    if int(expires) > _MAX_EXPIRES:
        raise S3Error(_QUERY_ERROR, "X-Amz-Expires must be less than a week (in seconds); that is 604800")
    if signed_at > request.time + _SKEW_SECONDS:
        raise S3Error("AccessDenied", "Request is not valid yet")
    if request.time > signed_at + int(expires):
        details = {"X-Amz-Expires": expires, "Expires": _iso(signed_at + int(expires))}
        raise S3Error("AccessDenied", "Request has expired", details | {"ServerTime": _iso(request.time)})


@lru_cache(maxsize=1024)
def _credential(credential: str, day: str, region: str, code: str) -> tuple[str, str]:
    """Return the name of the access key and the scope, which are checked: the same in all requests of a day.

    Args:
        credential: NAME/DATE/REGION/s3/aws4_request.
        day: When the request was signed, in the form 20261124.
        region: Region that clients have to sign.
        code: Code of the error for a malformed credential.
    """
    parts = credential.split("/")
    if len(parts) != 5:
        form = '"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request"'
        raise S3Error(code, f"The credential is mal-formed; expecting {form}.")
    access_key_id, date, named_region, service, terminator = parts
    if date != day:
        raise S3Error(code, f'Invalid credential date "{date}". This date is not the same as X-Amz-Date.')
    if named_region != region:
        message = f"The authorization is malformed; the region '{named_region}' is wrong; expecting '{region}'"
        raise S3Error(code, message, {"Region": region}, {"x-amz-bucket-region": region})
    if service != "s3":
        raise S3Error(code, f'The authorization is malformed; incorrect service "{service}"; expecting "s3".')
    if terminator != "aws4_request":
        raise S3Error(code, f'The authorization is malformed; incorrect terminal "{terminator}".')
    return access_key_id, "/".join(parts[1:])


def _signed_headers(request: S3Request, text: str, code: str) -> tuple[str, ...]:
    """Return the names of the signed headers. The host and all headers of the protocol must be among them."""
    names = tuple(text.split(";"))
    if "host" not in names:
        raise S3Error(code, "The header host must be signed.")
    unsigned = [name for name in request.headers if name.startswith("x-amz-") and name not in names]
    if unsigned:
        message = "There were headers present in the request which were not signed"
        raise S3Error("AccessDenied", message, {"HeadersNotSigned": ", ".join(sorted(unsigned))})
    return names


def _check_token(token: str | None) -> None:
    if token is not None:
        raise S3Error("InvalidToken", "The provided token is malformed or otherwise invalid.")


@lru_cache(maxsize=1024)
def _seconds(text: str) -> float | None:
    """Return a time such as 20261124T100000Z in seconds since 1970; None for any other text."""
    found = _TIME.fullmatch(text)
    try:
        year, month, day, hour, minute, second = map(int, found.groups() if found else ())
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
