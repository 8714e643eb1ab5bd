"""The answer to a request of the S3 protocol."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from cafcat.serve.s3.errors import S3Error
from cafcat.serve.s3.request import S3Request
from cafcat.serve.s3.xml import document, texts, without_controls

__all__ = ["Answer", "RequestIds", "error_answer", "with_id", "xml_answer"]


@dataclass(slots=True)
class Answer:
    """Status, headers and body of a response.

    Attributes:
        status: HTTP status.
        headers: Headers by name.
        body: The body, or its first bytes.
        rest: The bytes of the body after `body`; None if there are none.
    """

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    rest: Iterator[bytes] | None = None


class RequestIds:
    """Makes the names of requests, by which an answer is found in the log. Threads may share an object."""

    def __init__(self) -> None:
        """Begin with a random prefix."""
        self._prefix, self._numbers = os.urandom(4).hex().upper(), count()

    def new(self) -> str:
        """Return a name that no other request has."""
        return f"{self._prefix}{next(self._numbers) & 0xFFFFFFFF:08X}"


def with_id(headers: dict[str, str], request_id: str) -> dict[str, str]:
    """Return headers and the headers that every answer has."""
    return headers | {"x-amz-request-id": request_id, "x-amz-id-2": "cafcat"}


def xml_answer(body: bytes, headers: Mapping[str, str] | None = None) -> Answer:
    """Return an answer with an XML document."""
    own = {"content-type": "application/xml", "content-length": str(len(body))}
    return Answer(200, own | dict(headers or {}), body)


def error_answer(error: S3Error, request: S3Request | None, request_id: str) -> Answer:
    """Return the answer for an error. The body of an answer to HEAD is empty.

    Args:
        error: The error.
        request: The request; None if it could not be read.
        request_id: Name of the request in the log of the server.
    """
    resource = "" if request is None else request.raw_path.decode("latin-1")
    values = [("Code", error.code), ("Message", error.message), *error.details.items()]
    values += [("Resource", resource), ("RequestId", request_id), ("HostId", "cafcat")]
    content = texts((name, without_controls(value)) for name, value in values)
    answer = xml_answer(document("Error", content, namespace=False), error.headers)
    answer.status = error.status
    if request is not None and request.method == "HEAD":
        answer.body, answer.headers["content-length"] = b"", "0"
    return answer
