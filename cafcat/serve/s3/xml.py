"""Writes the XML documents of the S3 protocol."""

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["document", "element", "escape", "texts", "without_controls"]

_DECLARATION: Final = '<?xml version="1.0" encoding="UTF-8"?>\n'
_NAMESPACE: Final = ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
_SPECIAL: Final = re.compile('[&<>"\r\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]')
_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_NAMES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}


def escape(text: str) -> str:
    """Return a text as content of an element.

    Control characters become references, as in the answers of Amazon S3. XML 1.0 allows no other form, and strict
    parsers refuse this one: clients ask for `encoding-type=url` to read such names.
    """
    return _SPECIAL.sub(lambda found: _NAMES.get(found[0]) or f"&#x{ord(found[0]):X};", text)


def without_controls(text: str) -> str:
    """Return a text for people, with U+FFFD for each control character, which no XML parser accepts."""
    return _CONTROL.sub("\ufffd", text)


def element(name: str, text: object) -> str:
    """Return an element with a text. True and False become "true" and "false"."""
    shown = str(text).lower() if isinstance(text, bool) else str(text)
    return f"<{name}>{escape(shown)}</{name}>"


def texts(values: Iterable[tuple[str, object]]) -> str:
    """Return elements with texts. A value of None is left out."""
    return "".join(element(name, value) for name, value in values if value is not None)


def document(root: str, content: str, *, namespace: bool = True) -> bytes:
    """Return a document in UTF-8.

    Args:
        root: Name of the root element.
        content: The XML inside the root element.
        namespace: True for the namespace of S3. Errors have none.
    """
    return f"{_DECLARATION}<{root}{_NAMESPACE if namespace else ''}>{content}</{root}>".encode()
