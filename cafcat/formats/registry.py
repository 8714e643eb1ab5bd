"""Finds archive formats by name or suffix, and detects the format of an archive.

Third parties add a format with an entry point in the group `cafcat.formats`. The name of the entry point is the
name of the format, as in the column `chunks.format`; its value is a `Format`.
"""

from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from importlib.metadata import entry_points
from typing import Final, cast

from cafcat.errors import Corrupt, InvalidInput, NotInstalled, Unsupported
from cafcat.formats.base import ArchiveFolder, Format, MultiFileArchive, MultiFileFormat, NullSink, RandomReader

__all__ = [
    "LOGS",
    "NAMES",
    "all_formats",
    "by_name",
    "by_suffix",
    "detect",
    "detect_folder",
    "for_new_chunks",
    "for_writing",
    "is_read_only",
    "validate_name",
]

_BUILT_IN: Final = {
    "car": "cafcat.formats.car:CAR",
    "chunkio": "cafcat.formats.chunkio:CHUNKIO",
    "databundle": "cafcat.formats.databundle:DATABUNDLE",
    "clp-s": "cafcat.formats.clp:CLP",
    "caf": "cafcat.formats.caf:CAF",
}
"""Module and variable of each built-in format, in the order of detection. CAF has no magic number and comes last. A
format is imported when it is first used, so a command that only reads CAF does not load the others."""
NAMES: Final = tuple(_BUILT_IN)
"""Names of the built-in formats."""
LOGS: Final = "clp-s"
"""Name of the format of log archives. Their entries differ from the log files that were compressed into them."""
_GROUP: Final = "cafcat.formats"
"""Group of the entry points of third-party formats."""

_CAF_SUFFIX: Final = ".caf"
_SNIFF_BYTES: Final = 64
"""Number of bytes at both ends of an archive that formats may look at for detection."""
_SMALLEST_BYTES: Final = 4
"""Size in bytes of the smallest archive that any format has."""


def by_name(name: str) -> Format:
    """Return the format with this name, as the column `chunks.format` has it.

    Raises:
        Unsupported: there is no such format.
    """
    if name in _BUILT_IN:
        return _built_in(name)
    for point in entry_points(group=_GROUP, name=name):
        return cast(Format, point.load())
    raise Unsupported(f"there is no format {name!r}", hint=f"available formats: {_names()}")


def validate_name(name: str) -> str:
    """Check that a format with the name that a user typed exists, and return the format's own name.

    Raises:
        InvalidInput: there is no such format.
    """
    try:
        return by_name(name).name
    except Unsupported as error:
        raise InvalidInput(error.message, hint=error.hint) from error


def for_writing(name: str) -> Format:
    """Return the format with this name, after checking that it can write archives.

    Raises:
        Unsupported: there is no such format, or it cannot write archives.
        NotInstalled: a library that the format needs is not installed.
    """
    found = by_name(name)
    found.writer(NullSink())
    return found


def for_new_chunks(name: str) -> Format:
    """Return the format with this name for new chunks.

    The format must be writable, or be `LOGS`, whose archives the program clp-s writes.

    Raises:
        InvalidInput: there is no such format.
        Unsupported: the format cannot write archives.
        NotInstalled: a library that the format needs is not installed.
    """
    try:
        found = by_name(name)
    except Unsupported as error:
        raise InvalidInput(error.message, hint=error.hint) from error
    if found.name != LOGS:
        found.writer(NullSink())  # raises if the format cannot write
    return found


def is_read_only(name: str) -> bool:
    """Return True if the format is installed and has no writer for files.

    This includes clp-s, whose archives only the program clp-s writes. Also return False if the format, or a library
    that it needs, is not installed: then it is unknown whether the format can write.
    """
    with suppress(NotInstalled):
        try:
            for_writing(name)
        except Unsupported:
            return name in [installed.name for installed in all_formats()]
    return False


def by_suffix(object_key: str) -> Format:
    """Return the first format (see `all_formats`) whose suffix, such as ".caf", is the end of this object key.

    Raises:
        Unsupported: no format has this suffix.
    """
    for archive_format in all_formats():
        if object_key.endswith(archive_format.suffix):
            return archive_format
    suffix = object_key.rpartition("/")[2].rpartition(".")[2]
    raise Unsupported(f"there is no format with the suffix {suffix!r}", hint=f"available formats: {_names()}")


def detect(archive: RandomReader) -> Format:
    """Return the format of an archive, judged by its first and last bytes.

    Only a reader of that format can show whether the archive is complete.

    Raises:
        Corrupt: the archive has fewer than 4 bytes. Or no format recognizes it, and its name ends with ".caf".
        Unsupported: no format recognizes the archive. Errors of `archive.read_at` pass through.
    """
    size = archive.size_bytes
    if size < _SMALLEST_BYTES:
        message = f"{size} bytes are too few for an archive: the smallest archive has {_SMALLEST_BYTES} bytes"
        raise Corrupt(message, chunk=archive.name)
    head = archive.read_at(0, min(size, _SNIFF_BYTES))
    tail = archive.read_at(max(0, size - _SNIFF_BYTES), size)
    for archive_format in all_formats():
        if archive_format.sniff(head, tail):
            return archive_format
    if archive.name.lower().endswith(_CAF_SUFFIX):
        # CAF has no magic number. If the end of the archive is damaged, only the name shows its format.
        message = "not a complete CAF archive: there is no end of an index before its last 4 bytes"
        raise Corrupt(message, chunk=archive.name, byte=size)
    message = "unknown archive format, or the end of the archive is missing"
    hint = (
        f"formats are {_names()}: for a damaged archive, name one (--format, or --input-format of convert); "
        "`cafcat ingest` packs the files of a tar, and `tar tf` lists them"
    )
    raise Unsupported(message, chunk=archive.name, hint=hint)


def detect_folder(folder: ArchiveFolder) -> tuple[Format, MultiFileArchive] | None:
    """Return the format of the archive in a folder, and the archive itself; None if the files are no archive.

    Raises:
        Corrupt: the index of the archive is damaged.
        Unsupported: the archive uses a feature that cafcat does not have.
        NotInstalled: a library that reads the index is not installed.
        Conflict: another process changed the index while it was copied.
        StoreFailed: a temporary file failed. Errors of `folder` pass through.
    """
    for archive_format in all_formats():
        found = archive_format.open_folder(folder) if isinstance(archive_format, MultiFileFormat) else None
        if found is not None:
            return archive_format, found
    return None


def all_formats() -> Iterator[Format]:
    """Return an iterator over all formats, third-party and built-in, in the order in which `detect` tries them.

    Third-party formats come first, so that they can claim archives and suffixes before the built-in ones. By name,
    `by_name` finds a built-in format first.
    """
    for point in entry_points(group=_GROUP):
        yield cast(Format, point.load())
    yield from map(_built_in, NAMES)


def _built_in(name: str) -> Format:
    module, _, variable = _BUILT_IN[name].partition(":")
    return cast(Format, getattr(import_module(module), variable))


def _names() -> str:
    third_party = [point.name for point in entry_points(group=_GROUP)]
    return ", ".join([*sorted(NAMES), *third_party])
