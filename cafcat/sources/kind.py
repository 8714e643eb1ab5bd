"""Kinds of sources: how a source, or a single file of a list, is opened by the scheme of its URL."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from cafcat.errors import InvalidInput
from cafcat.model import SourceFile
from cafcat.sources.base import OpenFile, Source
from cafcat.sources.names import shown_url

if TYPE_CHECKING:
    from cafcat.sources.filter import PathFilter
    from cafcat.sources.parts import Part

__all__ = ["SourceContext", "SourceKind", "UrlFiles"]

_Connection = TypeVar("_Connection")


def _no_options(_url: str) -> Mapping[str, str]:
    return {}


def _no_position(_server: str) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class SourceContext:
    """Values that cafcat passes to a SourceKind when a source is opened.

    Attributes:
        prefix: Folder of the catalog that all names are put into; "" for none.
        filter: Which files to ingest (--include, --exclude). None: all files.
        options_of: Returns the options in cafcat.toml for a URL: those of the table [stores.NAME] whose `url` is
            the URL itself, or the nearest folder above it. The kind of *store* with the same scheme defines them
            (`StoreKind.options`).
        own_urls: URLs of cafcat's own stores. A kind does not ingest the objects that cafcat wrote there.
        inventory: Path or URL of a list of the files that replaces the listing (--inventory). None: list the files.
        resume_position: Called with the URL of the source's server. Returns the position from which an interrupted
            listing of the source continues, or None to list from the start. A kind calls this at most once, and
            only for a ResumableSource.
        part: The part of the source to list, which `DivisibleSource.cut` returned. None: the whole source.
        connections: Connections to servers, by the URL of a source. Sources that are opened one after the other
            with the same object, such as the parts of a bucket, share them.
    """

    prefix: str = ""
    filter: "PathFilter | None" = None
    options_of: Callable[[str], Mapping[str, str]] = _no_options
    own_urls: Sequence[str] = ()
    inventory: str | None = None
    resume_position: Callable[[str], str | None] = _no_position
    part: "Part | None" = None
    connections: dict[str, Any] = field(default_factory=dict)

    def connection(self, url: str, connect: Callable[[], _Connection]) -> _Connection:
        """Return the connection for a URL. `connect` makes one if there is none yet."""
        if url not in self.connections:
            self.connections[url] = connect()
        connection: _Connection = self.connections[url]
        return connection


class UrlFiles(Protocol):
    """Opens single files by the URLs in a list (--files-from). Safe to share between threads.

    The locator of each SourceFile is the URL as it stands in the list.
    """

    def name_of(self, url: str) -> str:
        """Return the name that the file at a URL gets in the catalog. Raises InvalidInput if it is not a URL."""

    def shown(self, url: str) -> str:
        """Return a URL for messages: printable, without password and other secrets."""

    def root_of(self, file: SourceFile) -> str:
        """Return the root of a file: the part of its URL that its name in the catalog does not repeat.

        Files with the same root and path are the same file at different times (`RootedSource`). A root contains no
        query and no password, because the catalog stores it.
        """

    def look(self, file: SourceFile) -> SourceFile:
        """Request size, time and entity tag of a file from its server, and return the file with these values.

        Raises:
            SourceFailed: This file is missing or cannot be read.
            AccessDenied: The credentials are refused. No further file of the list is read.
        """

    def open(self, file: SourceFile) -> OpenFile:
        """Open a file in the version that `look` found.

        Raises:
            SourceFailed: This file has changed since `look`, or cannot be read.
            AccessDenied: The credentials are refused. No further file of the list is read.
        """


class SourceKind:
    """How cafcat opens the sources of one URL scheme.

    To add a kind: subclass this, override `open`, `url_files` or both, and register an instance under its scheme.
    Built-in kinds are registered in `cafcat/sources/registry.py`, third-party kinds as entry points of the group
    `cafcat.sources`.
    """

    reads_inventories: bool = False
    """True if `open` uses `SourceContext.inventory`."""

    def open(self, url: str, context: SourceContext) -> Source:
        """Return the source at a URL, as in `cafcat ingest URL`.

        Raises:
            InvalidInput: The URL is not valid, or is only allowed in a list (--files-from). A kind that does not
                override this method raises this for every URL.
            NotFound: There is nothing at the URL.
            AccessDenied, SourceFailed, StoreFailed: The source cannot be listed.
        """
        del context
        hint = "put the URL into a file, and name that file with --files-from"
        raise InvalidInput(f"{shown_url(url)} is one file and cannot be listed", hint=hint)

    def url_files(self, context: SourceContext) -> UrlFiles:
        """Return the opener of single files by URLs of this scheme in a list (--files-from). This sends no request.

        Raises:
            InvalidInput: URLs of this scheme are not allowed in a list. A kind that does not override this method
                always raises this.
        """
        del context
        hint = "name the URL as an argument of the command"
        raise InvalidInput("a URL of this kind cannot be in a list of files (--files-from)", hint=hint)
