"""Conditional requests and byte ranges, with the precedence of Amazon S3."""

from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

from cafcat.model import Location
from cafcat.serve.s3.entity import entity_tag, modified_seconds
from cafcat.serve.s3.errors import S3Error
from cafcat.serve.s3.request import S3Request

__all__ = ["ByteSpan", "is_not_modified", "requested_span"]

_MAX_PARTS: Final = 10_000
_MAX_DIGITS: Final = 18
_CONDITIONS: Final = frozenset(("if-match", "if-none-match", "if-modified-since", "if-unmodified-since"))


class ByteSpan(NamedTuple):
    """A part of a file: bytes [start, end)."""

    start: int
    end: int


def is_not_modified(request: S3Request, location: Location) -> bool:
    """Return True if the client has the content already: the answer is 304.

    If-Match and If-None-Match come before the conditions on the time: these are then ignored.

    Raises:
        S3Error: PreconditionFailed, if If-Match or If-Unmodified-Since is not met.
    """
    if _CONDITIONS.isdisjoint(request.headers):
        return False
    tag, modified = entity_tag(location), modified_seconds(location)
    match, none_match = request.headers.get("if-match"), request.headers.get("if-none-match")
    if match is not None:
        if not _has_tag(match, tag):
            raise _failed("If-Match")
    else:
        unmodified_since = _time(request, "if-unmodified-since")
        if unmodified_since is not None and modified > unmodified_since:
            raise _failed("If-Unmodified-Since")
    if none_match is not None:
        return _has_tag(none_match, tag)
    modified_since = _time(request, "if-modified-since")
    return modified_since is not None and modified <= modified_since


def _failed(condition: str) -> S3Error:
    message = "At least one of the pre-conditions you specified did not hold"
    return S3Error("PreconditionFailed", message, {"Condition": condition})


def _has_tag(header: str, tag: str) -> bool:
    given = [text.strip().removeprefix("W/") for text in header.split(",")]
    return "*" in given or tag in given or tag.strip('"') in given  # some clients leave the quotes out


def _time(request: S3Request, header: str) -> float | None:
    """Return the time in a header in seconds since 1970; None if it is missing or malformed, and thus ignored."""
    try:
        return parsedate_to_datetime(request.headers[header]).timestamp()
    except (KeyError, ValueError, OverflowError, IndexError, TypeError):
        return None


def requested_span(request: S3Request, location: Location) -> ByteSpan | None:
    """Return the part of a file that a request is for; None for the whole file.

    A malformed Range, or one with several ranges, is ignored, as Amazon S3 does.

    Raises:
        S3Error: The range begins beyond the end, or there is no such part.
    """
    header, part = request.headers.get("range"), request.parameters.get("partNumber")
    if part is not None:
        if header is not None:
            raise S3Error("InvalidRequest", "Cannot specify both Range header and partNumber query parameter")
        _check_part(part)
        return ByteSpan(0, location.size_bytes) if location.size_bytes else None
    if header is None or not _is_current(request, location):
        return None
    return _span_of(header, location.size_bytes)


def _check_part(part: str) -> None:
    """Check the number of a part. Each object has one part."""
    number = int(part) if part.isascii() and part.isdigit() and len(part) <= _MAX_DIGITS else 0
    if not 1 <= number <= _MAX_PARTS:
        message = f"Part number must be an integer between 1 and {_MAX_PARTS}, inclusive"
        raise S3Error("InvalidArgument", message, {"ArgumentName": "partNumber", "ArgumentValue": part})
    if number != 1:
        details = {"PartNumberRequested": str(number), "ActualPartCount": "1"}
        raise S3Error("InvalidPartNumber", "The requested partnumber is not satisfiable", details)


def _is_current(request: S3Request, location: Location) -> bool:
    """Return False if the client has a part of another content, so that it needs all of this one (If-Range)."""
    given = request.headers.get("if-range")
    if given is None or given == entity_tag(location):
        return True
    return _time(request, "if-range") == modified_seconds(location)


def _span_of(header: str, size: int) -> ByteSpan | None:
    unit, _, text = header.partition("=")
    first, dash, last = (part.strip() for part in text.partition("-"))
    if unit.strip().lower() != "bytes" or not dash or not (first or last):
        return None
    if not all(_is_number(part) for part in (first, last) if part):
        return None
    if first and last and int(last) < int(first):
        return None
    start = int(first) if first else max(size - int(last), 0)
    if start >= size or (not first and int(last) == 0):
        details = {"RangeRequested": header, "ActualObjectSize": str(size)}
        headers = {"content-range": f"bytes */{size}"}
        raise S3Error("InvalidRange", "The requested range is not satisfiable", details, headers)
    return ByteSpan(start, min(int(last) + 1, size) if first and last else size)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
