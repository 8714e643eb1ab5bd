"""Translates the errors of boto3 and obstore. Messages contain the server's error code, if any, and no credentials.

Error codes: Amazon S3 API Reference, "Error responses"; Google Cloud Storage, "HTTP status and error codes" of the
XML API; Azure Storage, "Blob Storage error codes".
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from cafcat.errors import AccessDenied, CafcatError, Conflict, InvalidInput, NotFound, ServerFailed, StoreFailed

__all__ = [
    "CREATE_BUCKET",
    "NotOffered",
    "ObjectDenied",
    "OutOfRange",
    "Overloaded",
    "answered",
    "denied",
    "translated",
    "unreachable",
]


class OutOfRange(StoreFailed):
    """A requested range of bytes begins at or beyond the end of the object."""


class Overloaded(ServerFailed):
    """The server asks its clients to send fewer requests."""


class NotOffered(StoreFailed):
    """The server does not offer the requested operation."""


class ObjectDenied(AccessDenied):
    """The server does not allow this request. It may allow other requests with the same credentials."""


_NO_CREDENTIALS = {
    "401",
    "AccountProblem",
    "AllAccessDisabled",
    "AuthenticationFailed",
    "AuthenticationRequired",
    "AuthorizationHeaderMalformed",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidAuthenticationInfo",
    "InvalidToken",
    "NoAuthenticationInformation",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
    "Unauthorized",
}
_NOT_ALLOWED = {
    "403",
    "AccessDenied",
    "AuthorizationFailure",
    "AuthorizationPermissionMismatch",
    "AuthorizationResourceTypeMismatch",
    "Forbidden",
    "InsufficientAccountPermissions",
}
_MISSING = {
    "404",
    "BlobNotFound",
    "ContainerNotFound",
    "NoSuchBucket",
    "NoSuchKey",
    "NoSuchUpload",
    "NotFound",
    "ResourceNotFound",
}
_SERVER = {
    "429",
    "InternalError",
    "OperationTimedOut",
    "RequestTimeout",
    "ServerBusy",
    "ServiceUnavailable",
    "SlowDown",
    "Throttling",
    "TooManyRequests",
}
_OVERLOADED = {"429", "503", "ServerBusy", "ServiceUnavailable", "SlowDown", "Throttling", "TooManyRequests"}
_KINDS: dict[tuple[str, ...], type[CafcatError]] = {
    (
        "412",
        "PreconditionFailed",
        "409",
        "ConditionalRequestConflict",
        "BlobAlreadyExists",
        "ConditionNotMet",
        "TargetConditionNotMet",
    ): Conflict,
    ("416", "InvalidRange"): OutOfRange,
    ("501", "405", "NotImplemented", "MethodNotAllowed", "UnsupportedOperation"): NotOffered,
}

CREATE_BUCKET = "check the name, or create it first: cafcat creates neither buckets nor containers"
_HINTS = {
    "RequestTimeTooSkewed": "set the clock of this machine",
    "NoSuchBucket": CREATE_BUCKET,
    "ContainerNotFound": CREATE_BUCKET,
    "InvalidBucketName": "check the name of the bucket",
    "BlobArchived": "the object is in the archive tier: rehydrate it first",
    "BlobBeingRehydrated": "the object is being rehydrated from the archive tier: wait until that ends",
    "InvalidObjectState": "the object is in an archive storage class: restore it first",
    "301": "set the bucket's region: AWS_DEFAULT_REGION, or region in [stores.NAME] of cafcat.toml",
    "PermanentRedirect": "set the bucket's region: AWS_DEFAULT_REGION, or region in [stores.NAME] of cafcat.toml",
}
_WHO = {
    "s3": "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile, and their permissions",
    "gs": (
        "check GOOGLE_APPLICATION_CREDENTIALS, or run: gcloud auth application-default login; the account needs "
        "the role Storage Object User, or Storage Object Viewer to read only"
    ),
    "az": (
        "check AZURE_STORAGE_ACCOUNT and AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN, or run: az login; with a "
        "login, the account needs the role Storage Blob Data Contributor, or Storage Blob Data Reader to read only"
    ),
}
"""Hints about credentials, by the scheme of the bucket's URL."""
_ENDPOINTS = {"s3": "AWS_ENDPOINT_URL", "gs": "STORAGE_EMULATOR_HOST", "az": "AZURE_STORAGE_ACCOUNT"}
"""The variable of the environment that leads to a server, by the scheme of the bucket's URL."""
_AGAIN = "run the same command again"


@contextmanager
def translated(doing: str, where: str) -> Iterator[None]:
    """Translate errors of boto3, botocore, urllib3 and obstore inside a `with` block.

    FileNotFoundError and PermissionError are translated, too, because obstore's errors are derived from them.
    Other errors pass unchanged.

    Args:
        doing: The operation: "read", "write", "list", ...
        where: URL of the object or bucket.

    Raises:
        NotFound: The server has no such bucket, object or upload.
        AccessDenied: The credentials or the profile are missing, or the server refuses the credentials.
            ObjectDenied: the server does not allow this request, but may allow other requests.
        Conflict: A condition of the request (If-Match, If-None-Match) is not met.
        InvalidInput: A parameter is not valid.
        ServerFailed: The server does not answer, fails, or is overloaded (Overloaded).
        StoreFailed: The server answered with another error code. OutOfRange: the range begins at or beyond the end
            of the object. NotOffered: the server does not have this operation.
    """
    try:
        yield
    except CafcatError:
        raise
    except Exception as error:
        found = _from_boto(error, doing, where) or _from_obstore(error, doing, where)
        if found is None:
            raise
        # A server that refuses a signature quotes the whole request, with the session token. Not even a traceback
        # may show it, so the original error is not chained.
        raise found from None if isinstance(found, AccessDenied) else error


def _from_boto(error: Exception, doing: str, where: str) -> CafcatError | None:
    if not type(error).__module__.startswith(("botocore", "boto3", "urllib3")):
        return None
    from botocore import exceptions as boto

    if isinstance(error, boto.ClientError):
        document = error.response.get("Error", {})
        status = str(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", ""))
        return answered(document.get("Code") or status, document.get("Message", ""), doing, where)
    no_credentials = (boto.NoCredentialsError, boto.PartialCredentialsError, boto.CredentialRetrievalError)
    if isinstance(error, (*no_credentials, boto.TokenRetrievalError, boto.SSOError)):
        return denied("no usable credentials were found", doing, where)
    if isinstance(error, boto.ProfileNotFound):
        return AccessDenied(f"AWS' configuration does not have this profile: {error}", hint="see ~/.aws/config")
    if isinstance(error, boto.ParamValidationError | boto.InvalidRegionError):
        return InvalidInput(f"{where}: {_one_line(error)}")
    reason, hint = _one_line(error), _AGAIN
    if isinstance(error, boto.HTTPClientError | boto.ConnectionError):
        hint = _reach(where)
    if isinstance(error, boto.EndpointConnectionError):
        server = urlsplit(error.kwargs.get("endpoint_url", ""))
        reason = f"nobody answers at {server.scheme}://{server.netloc}"
    return ServerFailed(f"cannot {doing} {where}: {reason}", hint=hint)


def _from_obstore(error: Exception, doing: str, where: str) -> CafcatError | None:
    """Translate by the error's text: obstore quotes the server's document there, and has no other details."""
    text = str(error)
    code = re.search(r"<Code>(\w+)</Code>", text) or re.search(r"non-2xx status code: (\d+)", text)
    if code is not None:
        message = re.search(r"<Message>([^<]*)</Message>", text)
        return answered(code[1], message[1].strip().partition("\n")[0] if message else "", doing, where)
    if "Wanted range starting at" in text:  # with status 200 or 206
        return OutOfRange(f"cannot {doing} {where}: the range begins beyond the end")
    if isinstance(error, FileNotFoundError):
        return NotFound(f"cannot {doing} {where}: it does not exist")
    if isinstance(error, PermissionError) or type(error).__name__ == "UnauthenticatedError":
        # obstore's text has that of a provider of credentials inside.
        why = re.search(r"no usable credentials were found[^;\n]*", text)
        return denied(why[0] if why else "access denied", doing, where)
    if type(error).__module__.startswith("obstore"):
        reason = text.partition("\n")[0].rpartition(" - ")[2]
        hint = _reach(where) if "error sending request" in reason else _AGAIN
        return ServerFailed(f"cannot {doing} {where}: {_one_line(reason)}", hint=hint)
    return None


def answered(code: str, message: str, doing: str, where: str) -> CafcatError:
    """Return the error for an answer of a server.

    Args:
        code: The server's error code, or the status.
        message: The server's message; "" if there is none.
        doing: The operation: "read", "write", "list", ...
        where: URL of the object or bucket.
    """
    answer = code if not message or message == code else f"{code}: {message.strip().rstrip('.')}"
    text = f"cannot {doing} {where}: the server answered {_one_line(answer)}"
    if code in _MISSING:
        return NotFound(text, hint=_HINTS.get(code))
    if code in _NO_CREDENTIALS:
        return denied(f"the server answered {_one_line(answer)}", doing, where)
    if code in _NOT_ALLOWED:
        return ObjectDenied(text, hint=_who(where))
    for codes, kind in _KINDS.items():
        if code in codes:
            return kind(text)
    if code in _OVERLOADED:
        return Overloaded(text, hint=_AGAIN)
    failure = ServerFailed if code in _SERVER or re.fullmatch(r"5\d\d", code) else StoreFailed
    return failure(text, hint=_HINTS.get(code, _AGAIN))


def denied(reason: str, doing: str, where: str) -> AccessDenied:
    """Return the error for credentials that are missing, or that the server refuses."""
    return AccessDenied(f"cannot {doing} {where}: {reason}", hint=_who(where))


def unreachable(reason: object, doing: str, where: str) -> ServerFailed:
    """Return the error for a server that cannot be reached, or that does not answer."""
    return ServerFailed(f"cannot {doing} {where}: {_one_line(reason)}", hint=_reach(where))


def _scheme(where: str) -> str:
    scheme = where.partition("://")[0]
    return scheme if scheme in _WHO else "s3"


def _who(where: str) -> str:
    return _WHO[_scheme(where)]


def _reach(where: str) -> str:
    variable = _ENDPOINTS[_scheme(where)]
    return (
        f"check that the server is running, and that {variable}, or endpoint_url in cafcat.toml, is right; then "
        "run the same command again"
    )


def _one_line(error: object) -> str:
    return " ".join(str(error).split())
