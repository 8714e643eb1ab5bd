"""Opens the sources of an operation: the paths and URLs that the user typed, and the list of --files-from.

The module of a kind of source is imported when a source of the kind is opened.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from cafcat.catalog.catalog import Catalog
from cafcat.errors import InvalidInput
from cafcat.model import Comparison, OnConflict
from cafcat.progress import Progress
from cafcat.scanning.positions import Positions
from cafcat.sources.base import Source
from cafcat.sources.filter import PathFilter
from cafcat.sources.kind import SourceContext, SourceKind
from cafcat.sources.lists.name_list import NameListSource
from cafcat.sources.local.directory import DirectorySource
from cafcat.sources.names import WarnOnce, printable
from cafcat.sources.parts import Part
from cafcat.sources.registry import find_kind, scheme_of
from cafcat.support.arguments import member_of, parse_text
from cafcat.support.parameters import Flag, Unless, folder_flag

__all__ = ["SourceOpener", "SourceOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Options that choose the files of an operation's sources, and how these files are compared with the catalog.

    The attributes are documented at `IngestOptions`, which inherits them.
    """

    files_from: Annotated[
        str | None,
        Flag("--files-from", "Also ingest the files and URLs listed in FILE, one per line; - is stdin.", "FILE"),
    ] = None
    null_separated: Annotated[bool, Flag("--null -0", "Names in --files-from end with NUL instead of newline.")] = (
        False
    )
    prefix: Annotated[str, folder_flag("Catalog folder to put before all names.")] = ""
    include: Annotated[
        Sequence[str],
        Flag(
            "--include",
            "Only ingest files that match this .gitignore pattern, relative to SRC. Repeatable.",
            "PATTERN",
            parse_text,
        ),
    ] = ()
    exclude: Annotated[
        Sequence[str],
        Flag(
            "--exclude",
            "Leave out files that match this pattern, relative to SRC. Repeatable.",
            "PATTERN",
            parse_text,
        ),
    ] = ()
    follow_symlinks: Annotated[
        bool, Flag("--follow-symlinks", "Ingest the targets of symbolic links. Default: skip links.")
    ] = False
    unpack_tars: Annotated[bool, Unless("--no-unpack", "Ingest tar files as single files, not their members.")] = (
        True
    )
    inventory: Annotated[
        str | None,
        Flag("--inventory", "Manifest of an S3 Inventory, a file or URL, to use instead of a listing.", "FILE"),
    ] = None
    restart_listing: Annotated[
        bool, Flag("--restart-listing", "List the bucket from its beginning, not from the interruption.")
    ] = False
    on_conflict: Annotated[
        OnConflict, Flag("--on-conflict", "Action for a path that the catalog has with other content.")
    ] = OnConflict.REPLACE
    comparison: Comparison = Comparison.TIME

    def __post_init__(self) -> None:
        """Convert texts to the members of enums.

        Raises:
            InvalidInput: A text is unknown, `prefix` has a part `..`, or `null_separated` is without `files_from`.
        """
        if self.null_separated and self.files_from is None:
            raise InvalidInput("-0 is for the names in the list of --files-from: give --files-from, too")
        if ".." in self.prefix.split("/"):
            raise InvalidInput(f"the folder {self.prefix!r} has a part '..'", hint="write it as photos/2026")
        # Code below compares the members by identity.
        object.__setattr__(self, "on_conflict", member_of(OnConflict, self.on_conflict, "on_conflict"))
        object.__setattr__(self, "comparison", member_of(Comparison, self.comparison, "comparison"))

    @property
    def scope(self) -> list[Any]:
        """Values of the options on which the position of a listing depends, as JSON values.

        If one of them has changed, an interrupted listing starts from its beginning.
        """
        return [self.prefix, list(self.include), list(self.exclude), self.on_conflict, self.comparison]

    def as_recorded(self) -> dict[str, Any]:
        """Return the options for the column `ingest_runs.options`, by name.

        `files_from` and `null_separated` are left out: the name of the source shows the list. Bytes that are not
        UTF-8 are escaped, because Postgres cannot store them. A pattern may contain such bytes, to exclude such
        names.
        """
        return {
            "prefix": printable(self.prefix),
            "follow_symlinks": self.follow_symlinks,
            "unpack_tars": self.unpack_tars,
            "inventory": None if self.inventory is None else printable(self.inventory),
            "restart_listing": self.restart_listing,
            "include": list(map(printable, self.include)),
            "exclude": list(map(printable, self.exclude)),
            "on_conflict": str(self.on_conflict),
            "comparison": str(self.comparison),
        }


@dataclass(slots=True)
class SourceOpener:
    """Opens the sources of one operation, such as an ingest, by the names that the user typed.

    Attributes:
        options: Which files to find in the sources.
        catalog: The catalog, which has the positions of interrupted listings.
        options_of: Returns the options that [stores.NAME] in cafcat.toml sets for a URL.
        progress: Receives warnings.
        own_paths: Files and folders of cafcat itself, which are not ingested.
        own_urls: URLs of cafcat's own stores. Objects that cafcat wrote there are not ingested.
        part: The part of each source to open, which `DivisibleSource.cut` returned. None: whole sources.
    """

    options: SourceOptions
    catalog: Catalog
    options_of: Callable[[str], Mapping[str, str]]
    progress: Progress
    own_paths: Sequence[str] = ()
    own_urls: Sequence[str] = ()
    part: Part | None = None
    _listed: dict[Source, tuple[str, str]] = field(default_factory=dict)
    _connections: dict[str, Any] = field(default_factory=dict)

    def open(self, sources: Sequence[str | os.PathLike[str]]) -> list[Source]:
        """Return the opened sources, in the order of `sources`. The list of --files-from is the last source.

        Args:
            sources: Names of the sources: paths, URLs, or "-" for a tar on standard input.

        Raises:
            NotFound: There is no such file, folder or bucket.
            InvalidInput: Names or options contradict each other, or a name is invalid.
            AccessDenied, SourceFailed, StoreFailed: A source cannot be used at all.
            Conflict, Corrupt, NotInstalled, Unsupported: The inventory cannot be used.
        """
        self._check(sources)
        self.progress = WarnOnce(self.progress)
        opened = [self._open(os.fspath(source)) for source in sources]
        if self.options.files_from is not None:
            opened.append(self._open_listing(self.options.files_from))
        return opened

    def open_part(self, sources: Sequence[str | os.PathLike[str]], number: int, part: Part) -> Source:
        """Return one of the sources, opened so that it lists only a part of its files.

        Args:
            sources: Names of all sources.
            number: Position of the source in the list that `open` returns for these names.
            part: The part, which `cut` of the source returned; WHOLE for a source that cannot be cut.

        Raises:
            NotFound, InvalidInput, AccessDenied, SourceFailed, StoreFailed, Conflict, Corrupt, NotInstalled,
                Unsupported: As `open` raises them.
        """
        self.part = part
        if number < len(sources):
            return self._open(os.fspath(sources[number]))
        assert self.options.files_from is not None  # noqa: S101 - `open` counted the list
        return self._open_listing(self.options.files_from)

    @property
    def has_resumable_listing(self) -> bool:
        """True if the listing of an opened source can be continued after an interruption."""
        return bool(self._listed)

    def begin_listings(self, run_id: int, positions: Positions) -> None:
        """Record in the catalog that the listings of the opened sources begin or continue. Call this after `open`.

        Sources without a resumable listing are left out.

        Args:
            run_id: `ingest_runs.id` of this ingest.
            positions: Saves the positions of these listings from now on.
        """
        if self._listed:
            listings, afresh = self.catalog.listings, self.options.restart_listing
            ids = {
                source: listings.begin(url, scope, run_id, afresh=afresh).id
                for source, (url, scope) in self._listed.items()
            }
            positions.begin(listings, ids)

    def finish_listings(self) -> None:
        """Record the end of the listings of the opened sources that earlier ingests left unfinished."""
        for url, scope in self._listed.values():
            if (found := self.catalog.listings.find(url, scope)) is not None:
                self.catalog.listings.finish(found.id)

    def _check(self, sources: Sequence[str | os.PathLike[str]]) -> None:
        if self.options.inventory is not None:
            kind = _kind_of(os.fspath(sources[0])) if len(sources) == 1 else None
            if kind is None or not kind.reads_inventories:
                hint = "name one source, as s3://BUCKET"
                raise InvalidInput("--inventory replaces the listing of exactly one bucket", hint=hint)
        if sources.count("-") > 1 or ("-" in sources and self.options.files_from == "-"):
            raise InvalidInput("standard input can be read only once")
        if "-" in sources and not self.options.unpack_tars:
            raise InvalidInput(
                "standard input must be a tar archive, which is unpacked", hint="leave out --no-unpack"
            )

    def _open(self, typed: str) -> Source:
        kind = _kind_of(typed)
        if kind is not None:
            return self._open_url(kind, typed)
        options = self.options
        shared: dict[str, Any] = {"prefix": options.prefix, "filter": self._filter(), "progress": self.progress}
        if typed == "-" or (options.unpack_tars and not os.path.isdir(typed)):
            from cafcat.sources.tar.archive import looks_like_tar, open_tar

            archive = open_tar(typed, **shared)
            if archive is not None:
                return archive
            if looks_like_tar(typed):
                self.progress.warn(f"{printable(typed)} cannot be read as a tar archive: it is ingested as a file")
        shared |= {"follow_symlinks": options.follow_symlinks, "own_paths": self.own_paths}
        return DirectorySource(typed, part=self.part, **shared)

    def _open_listing(self, files_from: str) -> Source:
        options = self.options
        return NameListSource(
            files_from,
            null_separated=options.null_separated,
            follow_symlinks=options.follow_symlinks,
            own_paths=self.own_paths,
            context=SourceContext(
                prefix=options.prefix, filter=self._filter(), options_of=self.options_of, part=self.part
            ),
            progress=self.progress,
        )

    def _open_url(self, kind: SourceKind, url: str) -> Source:
        scopes: list[str] = []

        def resume_position(server: str) -> str | None:
            scopes.append(json.dumps([server, *self.options.scope]))
            return self._position(url, scopes[-1])

        source = kind.open(
            url,
            SourceContext(
                prefix=self.options.prefix,
                filter=self._filter(),
                options_of=self.options_of,
                own_urls=self.own_urls,
                inventory=self.options.inventory,
                resume_position=resume_position,
                part=self.part,
                connections=self._connections,
            ),
        )
        if scopes:
            self._listed[source] = (url, scopes[-1])
        return source

    def _position(self, url: str, scope: str) -> str | None:
        """Return the position from which an interrupted listing with the same URL and scope continues.

        The user is warned of the continuation. Return None if the listing starts at its beginning.
        """
        found = None if self.options.restart_listing else self.catalog.listings.find(url, scope)
        if found is None or found.position is None:
            return None
        key = printable(found.position)
        self.progress.warn(
            f"continuing the listing of {printable(url)} that began at {found.started_at}, after {key}; "
            "--restart-listing lists all again"
        )
        return found.position

    def _filter(self) -> PathFilter | None:
        options = self.options
        return PathFilter(options.include, options.exclude) if options.include or options.exclude else None


def _kind_of(typed: str) -> SourceKind | None:
    """Return the kind of source that a typed URL belongs to; None for a path or an unknown scheme."""
    scheme = scheme_of(typed)
    return None if scheme is None else find_kind(scheme)
