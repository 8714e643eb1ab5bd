"""Compares responses of `cafcat serve` with its description, cafcat/serve/openapi.json."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import cafcat

__all__ = ["DESCRIPTION", "METHODS", "check_described", "operation_path", "responses_of"]

DESCRIPTION: dict[str, Any] = json.loads((Path(cafcat.__file__).parent / "serve/openapi.json").read_text("utf-8"))
METHODS = {"get", "head", "post", "put", "patch", "delete", "options", "trace"}


def operation_path(target: str) -> str:
    """Return the path of the description that the target of a request belongs to, such as "/files/{path}"."""
    path = target.partition("?")[0]
    if not path.startswith("/files/") or path == "/files/":
        return path
    return "/files/{folder}/" if unquote(path).endswith("/") else "/files/{path}"


def responses_of(path: str, method: str) -> dict[str, Any]:
    """Return the described responses of an operation, by status. "x" is any method that the path does not have."""
    item = DESCRIPTION["paths"][path]
    found = item[method.lower()]["responses"] if method.lower() in item else item["x-other-methods"]
    return {status: resolved(response) for status, response in found.items()}


def resolved(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part of the description, or the part that it refers to."""
    if "$ref" not in part:
        return part
    found: Any = DESCRIPTION
    for name in part["$ref"].removeprefix("#/").split("/"):
        found = found[name]
    return dict(found)


def check_described(method: str, target: str, status: int, headers: dict[str, str]) -> None:
    """Check that the description has a response: its status, its media type, and its headers.

    Args:
        method: Method of the request.
        target: Its path and query, as sent.
        status: Status of the response.
        headers: Headers of the response, by lower-case names.
    """
    path = operation_path(target)
    if path.startswith("/-/"):  # pages of the console, for people
        return
    if path not in DESCRIPTION["paths"]:
        assert status == 404, (target, status)
        return
    described = responses_of(path, method)
    assert str(status) in described, f"{method} {target} got {status}, which openapi.json does not describe"
    response = described[str(status)]
    for name, header in response.get("headers", {}).items():
        assert name.lower() in headers or not resolved(header).get("required"), (target, status, name)
    kinds = response.get("content", {})
    kind = headers.get("content-type", "").partition(";")[0]
    assert not kinds or method == "HEAD" or kind in kinds or "*/*" in kinds, (target, status, kind)
    if status == 405:
        assert headers["allow"].lower().split(", ") == [
            name for name in DESCRIPTION["paths"][path] if name in METHODS
        ]
