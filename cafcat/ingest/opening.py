"""The sources of a run, from what was typed."""

import os
from collections.abc import Callable, Sequence
from typing import Any

from cafcat.sources.base import Source
from cafcat.sources.directory import DirectorySource
from cafcat.sources.filter import PathFilter
from cafcat.sources.listing import ListingSource
from cafcat.sources.names import printable, warn_once

__all__ = ["open_sources", "printable_options"]


def open_sources(
    sources: Sequence[str | os.PathLike[str]],
    files_from: str | None,
    *,
    null_separated: bool,
    options: dict[str, Any],
    own_folders: Sequence[str],
    warn: Callable[[str], None],
) -> list[Source]:
    """Opens them. `options` are those of the run (prefix, include, exclude, follow_symlinks); `own_folders` are not
    walked into. Raises NotFound, InvalidInput or SourceFailed for a source that cannot be used at all."""
    patterns = PathFilter(options["include"], options["exclude"])
    shared: dict[str, Any] = {
        "prefix": options["prefix"],
        "follow_symlinks": options["follow_symlinks"],
        "filter": patterns if options["include"] or options["exclude"] else None,
        "own_folders": own_folders,
        "warn": warn_once(warn),
    }
    opened: list[Source] = [DirectorySource(os.fspath(source), **shared) for source in sources]
    if files_from is not None:
        opened.append(ListingSource(files_from, null_separated=null_separated, **shared))
    return opened


def printable_options(options: dict[str, Any]) -> dict[str, Any]:
    """The same as text that Postgres can hold: a pattern may have bytes that are no UTF-8, to exclude such."""

    def shown(value: Any) -> Any:
        if isinstance(value, list):
            return [shown(item) for item in value]
        return printable(value) if isinstance(value, str) else value

    return {name: shown(value) for name, value in options.items()}
