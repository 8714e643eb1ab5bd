"""A page of the console, and a visit to it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from cafcat.catalog.console.reading import PageQueries
from cafcat.errors import CafcatError, NotFound
from cafcat.model import MAX_PATH_BYTES, NO_SUCH_FILE
from cafcat.packed_files import PackedFiles
from cafcat.serve.console.visitors import Visitor
from cafcat.serve.failures import BadRequest
from cafcat.support.paths import is_text

__all__ = ["Content", "LoginNeeded", "Page", "Visit"]

Content = dict[str, Any]
"""Values of a template, by their names."""


class LoginNeeded(BadRequest):
    """The visitor has no login, and may not see this without one. Pages lead to the login instead."""

    def __init__(self) -> None:
        """Create an error with the status 401."""
        super().__init__(401, "log in to read files", [(b"www-authenticate", b'Cookie realm="cafcat"')])


@dataclass(frozen=True, slots=True)
class Visit:
    """One request for a page, by a visitor who may see the page.

    Attributes:
        repository: Finds and reads files. It has a connection of its own.
        visitor: Who asks, and which files the visitor may see.
        values: Values of the URL's query, by their names.
    """

    repository: PackedFiles
    visitor: Visitor
    values: Mapping[str, str]

    @property
    def queries(self) -> PageQueries:
        """Runs the queries of pages."""
        return self.repository.session.catalog.pages

    def text(self, name: str) -> str:
        """Return a value of the query; "" if it is missing.

        Raises:
            BadRequest: No path or pattern can have this value.
        """
        value = self.values.get(name, "")
        if not is_text(value) or len(value.encode()) > MAX_PATH_BYTES + 1:
            raise BadRequest(400, f"{name} is too long, or is not text")
        return value

    def number(self, name: str, default: int) -> int:
        """Return a whole number of the query, from 0 to 2⁶³ - 1; the default if it is missing.

        Raises:
            BadRequest: The value is not such a number.
        """
        value = self.values.get(name)
        if value is None:
            return default
        if not (value.isascii() and value.isdigit() and len(value) < 20 and int(value) < 1 << 63):
            raise BadRequest(400, f"{name} must be a number")
        return int(value)

    def chunk_uuid(self, name: str) -> UUID:
        """Return the UUID of the chunk whose UUID, or at least its first 8 digits, the query has.

        Raises:
            BadRequest: The value is too long, or is not text.
            InvalidInput: The value has fewer than 8 digits, or the UUIDs of several chunks begin with it.
            NotFound: The UUID of no chunk begins with the value.
        """
        text = self.text(name)
        try:
            return UUID(text)
        except ValueError:
            return self.repository.session.catalog.chunks.chunk(text).uuid

    def visible_path(self, name: str) -> str:
        """Return the path of a file in the query.

        Raises:
            BadRequest: No file can have the name.
            NotFound: The path is empty.
            NotFound, LoginNeeded: The visitor may not see files of this name, whether they exist or not.
        """
        path = self.text(name)
        if not path:
            raise NotFound(NO_SUCH_FILE)
        if path not in self.visitor.visible:
            raise self.hidden("file")
        return path

    def hidden(self, kind: str) -> CafcatError:
        """Return the error for a "file" or "folder" that the visitor may not see, whether it exists or not."""
        if self.visitor.name is None:
            return LoginNeeded()
        return NotFound(f"the catalog has no such {kind}, or your key does not show it")


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the console.

    Attributes:
        name: Last part of its URL, `/-/NAME`. Its template is `templates/NAME.html`.
        title: Its title, and its text in the navigation.
        query: Returns the values of the template. It runs in a thread, and changes nothing.
        in_navigation: True for a link in the navigation.
        shows_all: True if the page is about the whole catalog, so that visitors who may see some folders only do
            not get it.
    """

    name: str
    title: str
    query: Callable[[Visit], Content]
    in_navigation: bool = False
    shows_all: bool = True
