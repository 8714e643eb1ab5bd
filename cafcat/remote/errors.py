"""What boto3 and obstore raise, in cafcat's words. Messages name the server's error code, and never credentials.

Error codes: Amazon S3 API Reference, "Error responses".
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from cafcat.errors import AccessDenied, CafcatError, Conflict, InvalidInput, NotFound, ServerFailed, StoreFailed

__all__ = ["NotOffered", "ObjectDenied", "OutOfRange", "translated"]


class OutOfRange(StoreFailed):
    """A range begins beyond the end of its object."""


class NotOffered(StoreFailed):
    """The server does not have the operation that was asked for."""


class ObjectDenied(AccessDenied):
    """The server knows who we are, and does not let us do this."""


_NO_CREDENTIALS = {
    "401",
    "AccountProblem",
    "AllAccessDisabled",
    "AuthorizationHeaderMalformed",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidToken",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
    "Unauthorized",
}
_NOT_ALLOWED = {"403", "AccessDenied", "Forbidden"}
_MISSING = {"404", "NoSuchKey", "NoSuchBucket", "NoSuchUpload", "NotFound"}
_SERVER = {"InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown", "Throttling", "TooManyRequests"}
_KINDS: dict[tuple[str, ...], type[CafcatError]] = {
    ("412", "PreconditionFailed", "409", "ConditionalRequestConflict"): Conflict,
    ("416", "InvalidRange"): OutOfRange,
    ("501", "405", "NotImplemented", "MethodNotAllowed", "UnsupportedOperation"): NotOffered,
}

_HINTS = {
    "RequestTimeTooSkewed": "set the clock of this machine",
    "NoSuchBucket": "cafcat makes no buckets: make it first",
    "InvalidObjectState": "the object is in an archive class: restore it first",
    "301": "set the region of the bucket: AWS_DEFAULT_REGION, or region of the store in cafcat.toml",
    "PermanentRedirect": "set the region of the bucket: AWS_DEFAULT_REGION, or region of the store in cafcat.toml",
}
_WHO = "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile, and what they may do"
_REACH = "is the server up, and AWS_ENDPOINT_URL right? Then run the same command again"
_AGAIN = "run the same command again"


@contextmanager
def translated(doing: str, where: str) -> Iterator[None]:
    """Foreign exceptions become NotFound, AccessDenied, Conflict, InvalidInput or StoreFailed.

    Args: doing: "read", "write", "list", ...; where: URL of the object or bucket.
    """
    try:
        yield
    except CafcatError:
        raise
    except Exception as error:
        found = _from_boto(error, doing, where) or _from_obstore(error, doing, where)
        if found is None:
            raise
        # A server that refuses a signature quotes the request that it saw, session token and all: not even a
        # traceback may show that.
        raise found from None if isinstance(found, AccessDenied) else error


def _from_boto(error: Exception, doing: str, where: str) -> CafcatError | None:
    if not type(error).__module__.startswith(("botocore", "boto3", "urllib3")):
        return None
    from botocore import exceptions as boto

    if isinstance(error, boto.ClientError):
        said = error.response.get("Error", {})
        status = str(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", ""))
        return _by_code(said.get("Code") or status, said.get("Message", ""), doing, where)
    no_credentials = (boto.NoCredentialsError, boto.PartialCredentialsError, boto.CredentialRetrievalError)
    if isinstance(error, (*no_credentials, boto.TokenRetrievalError, boto.SSOError)):
        return _denied("no usable credentials were found", doing, where)
    if isinstance(error, boto.ProfileNotFound):
        return AccessDenied(f"AWS' configuration has no such profile: {error}", hint="see ~/.aws/config")
    if isinstance(error, boto.ParamValidationError | boto.InvalidRegionError):
        return InvalidInput(f"{where}: {_one_line(error)}")
    unreachable = isinstance(error, boto.HTTPClientError)
    return ServerFailed(f"cannot {doing} {where}: {_one_line(error)}", hint=_REACH if unreachable else _AGAIN)


def _from_obstore(error: Exception, doing: str, where: str) -> CafcatError | None:
    """obstore says all in its text: the server's document is quoted in it."""
    text = str(error)
    code = re.search(r"<Code>(\w+)</Code>", text) or re.search(r"non-2xx status code: (\d+)", text)
    if code is not None:
        message = re.search(r"<Message>([^<]*)</Message>", text)
        return _by_code(code[1], message[1] if message else "", doing, where)
    if "ReadRequest range starting at" in text:  # the server answered a range beyond the end with status 200 or 206
        return OutOfRange(f"cannot {doing} {where}: the range begins beyond the end")
    if isinstance(error, FileNotFoundError):
        return NotFound(f"cannot {doing} {where}: it is not there")
    if isinstance(error, PermissionError):
        return _denied("access denied", doing, where)
    if type(error).__module__.startswith("obstore"):
        reason = text.partition("\n")[0].rpartition(" - ")[2]
        hint = _REACH if "error sending request" in reason else _AGAIN
        return ServerFailed(f"cannot {doing} {where}: {_one_line(reason)}", hint=hint)
    return None


def _by_code(code: str, message: str, doing: str, where: str) -> CafcatError:
    said = code if not message or message == code else f"{code}: {message.strip().rstrip('.')}"
    text = f"cannot {doing} {where}: the server says {_one_line(said)}"
    if code in _MISSING:
        return NotFound(text, hint=_HINTS.get(code))
    if code in _NO_CREDENTIALS:
        return _denied(f"the server says {_one_line(said)}", doing, where)
    if code in _NOT_ALLOWED:
        return ObjectDenied(text, hint=_WHO)
    for codes, kind in _KINDS.items():
        if code in codes:
            return kind(text)
    failure = ServerFailed if code in _SERVER or re.fullmatch(r"5\d\d", code) else StoreFailed
    return failure(text, hint=_HINTS.get(code, _AGAIN))


def _denied(reason: str, doing: str, where: str) -> AccessDenied:
    return AccessDenied(f"cannot {doing} {where}: {reason}", hint=_WHO)


def _one_line(error: object) -> str:
    return " ".join(str(error).split())
