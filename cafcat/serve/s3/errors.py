"""Errors of the S3 protocol."""

from collections.abc import Mapping
from typing import Final

from cafcat.errors import CafcatError, CatalogUnavailable, InvalidInput, NotFound, Unavailable

__all__ = ["S3Error", "error_of"]

_STATUS: Final = {
    "AccessDenied": 403,
    "AccessForbidden": 403,
    "AuthorizationHeaderMalformed": 400,
    "AuthorizationQueryParametersError": 400,
    "BadRequest": 400,
    "InternalError": 500,
    "InvalidAccessKeyId": 403,
    "InvalidArgument": 400,
    "InvalidPartNumber": 416,
    "InvalidRange": 416,
    "InvalidRequest": 400,
    "InvalidToken": 400,
    "InvalidURI": 400,
    "KeyTooLongError": 400,
    "MethodNotAllowed": 405,
    "NoSuchBucket": 404,
    "NoSuchKey": 404,
    "NoSuchVersion": 404,
    "NotImplemented": 501,
    "PreconditionFailed": 412,
    "RequestTimeTooSkewed": 403,
    "ServiceUnavailable": 503,
    "SignatureDoesNotMatch": 403,
    "XAmzContentSHA256Mismatch": 400,
}


class S3Error(Exception):
    """An error that a client gets as an XML document.

    Attributes:
        code: Code of the error in the S3 protocol, such as "NoSuchKey".
        message: The message for people.
        details: Further elements of the document.
        headers: Further headers of the response.
    """

    def __init__(
        self,
        code: str,
        message: str,
        details: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details or {}
        self.headers = headers or {}

    @property
    def status(self) -> int:
        """HTTP status of the response."""
        return _STATUS[self.code]


def error_of(error: CafcatError) -> S3Error:
    """Return the error of the protocol for an error of cafcat. It reveals no names of stores, chunks or hosts."""
    if isinstance(error, NotFound):
        return S3Error("NoSuchKey", "The specified key does not exist.")
    if isinstance(error, InvalidInput):
        return S3Error("InvalidArgument", "A name or a value in the request is invalid.")
    if isinstance(error, CatalogUnavailable | Unavailable):
        return S3Error("ServiceUnavailable", "The catalog or a store does not answer. Try again later.")
    return S3Error("InternalError", "The object cannot be read. The log of the server has the reason.")
