"""Which formats there are, and which of them an archive is.

A format of somebody else is found by its entry point: group `cafcat.formats`, its name as `chunks.format` is to
have it, its value a Format.
"""

from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from importlib.metadata import entry_points
from typing import Final, cast

from cafcat.errors import Corrupt, InvalidInput, NotInstalled, Unsupported
from cafcat.formats.base import ArchiveFolder, Format, NullSink, RandomReader, Spread, Spreads

__all__ = [
    "LOGS",
    "NAMES",
    "asked_for",
    "by_name",
    "by_suffix",
    "detect",
    "is_only_read",
    "known",
    "of_new_chunks",
    "spread",
    "to_write",
]

_OWN: Final = {
    "car": "cafcat.formats.car:CAR",
    "chunkio": "cafcat.formats.chunkio:CHUNKIO",
    "databundle": "cafcat.formats.databundle:DATABUNDLE",
    "clp-s": "cafcat.formats.clp:CLP",
    "caf": "cafcat.formats.caf:CAF",
}
"""In the order in which they are tried. CAF has no magic number and stays last. Each is imported when it is asked
for: a command that reads CAF needs none of the others."""
NAMES: Final = tuple(_OWN)
LOGS: Final = "clp-s"
"""Of archives of logs: what they are made of are not their entries."""
_GROUP: Final = "cafcat.formats"

_CAF_SUFFIX: Final = ".caf"
_SNIFF_BYTES: Final = 64
_SMALLEST_BYTES: Final = 4
"""No format has archives that are smaller."""


def by_name(name: str) -> Format:
    """The format of that name, as in `chunks.format`. Raises Unsupported."""
    if name in _OWN:
        return _own(name)
    for point in entry_points(group=_GROUP, name=name):
        return cast(Format, point.load())
    raise Unsupported(f"there is no format {name!r}", hint=f"this version has {_names()}")


def asked_for(name: str) -> str:
    """A name that somebody typed. Raises InvalidInput if no format has it."""
    try:
        return by_name(name).name
    except Unsupported as error:
        raise InvalidInput(error.message, hint=error.hint) from error


def to_write(name: str) -> Format:
    """The format of that name, to write archives of it. Raises Unsupported if there is none, or if it is only read;
    NotInstalled."""
    found = by_name(name)
    found.writer(NullSink())
    return found


def of_new_chunks(name: str) -> Format:
    """The format that somebody wants chunks in: one that is written, or that its own program makes of logs. Raises
    InvalidInput if there is none of that name, Unsupported, NotInstalled."""
    name = asked_for(name)
    return by_name(name) if name == LOGS else to_write(name)


def is_only_read(name: str) -> bool:
    """Whether it is known that archives of this format are never written: nobody can tell where the format, or a
    library that it needs, is not installed."""
    with suppress(NotInstalled):
        try:
            to_write(name)
        except Unsupported:
            return name in [known.name for known in _all()]
    return False


def by_suffix(object_key: str) -> Format:
    """The format whose chunks have keys that end like this one. Raises Unsupported."""
    for archive_format in _all():
        if object_key.endswith(archive_format.suffix):
            return archive_format
    suffix = object_key.rpartition("/")[2].rpartition(".")[2]
    raise Unsupported(f"there is no format with the suffix {suffix!r}", hint=f"this version has {_names()}")


def detect(archive: RandomReader) -> Format:
    """Return the format of an archive, by its first and last bytes. Its reader tells whether it is whole.

    Raises:
        Corrupt: it is too small for any format, or has the name of a CAF and not the end of one.
        Unsupported: it looks like no format.
    """
    size = archive.size_bytes
    if size < _SMALLEST_BYTES:
        message = f"{size} bytes are too few for an archive of any format, the smallest has {_SMALLEST_BYTES}"
        raise Corrupt(message, chunk=archive.name)
    head = archive.read_at(0, min(size, _SNIFF_BYTES))
    tail = archive.read_at(max(0, size - _SNIFF_BYTES), size)
    for archive_format in _all():
        if archive_format.sniff(head, tail):
            return archive_format
    if archive.name.lower().endswith(_CAF_SUFFIX):
        # CAF has no magic number: a damaged end leaves nothing but the name to tell the format.
        message = "not a whole CAF archive: no index ends before its last 4 bytes"
        raise Corrupt(message, chunk=archive.name, byte=size)
    message = "not an archive, or one whose end is missing"
    hint = f"of a damaged archive, name the format with --format ({_names()}), in convert with --input-format"
    raise Unsupported(message, chunk=archive.name, hint=hint)


def spread(folder: ArchiveFolder) -> tuple[Format, Spread] | None:
    """The archive that a folder is, with its format; None if it is none. Raises Corrupt, Unsupported."""
    for archive_format in _all():
        found = archive_format.spread(folder) if isinstance(archive_format, Spreads) else None
        if found is not None:
            return archive_format, found
    return None


def known() -> Iterator[Format]:
    """All formats, in the order in which they are tried."""
    return _all()


def _all() -> Iterator[Format]:
    """Those of others first: they have reasons of their own to be there."""
    for point in entry_points(group=_GROUP):
        yield cast(Format, point.load())
    yield from map(_own, NAMES)


def _own(name: str) -> Format:
    module, _, variable = _OWN[name].partition(":")
    return cast(Format, getattr(import_module(module), variable))


def _names() -> str:
    others = [point.name for point in entry_points(group=_GROUP)]
    return ", ".join([*sorted(NAMES), *others])
