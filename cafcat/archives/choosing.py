"""Chooses the format of a new archive from its file name, or from the name that the user gave."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cafcat.errors import InvalidInput, NotInstalled, Unsupported
from cafcat.formats import registry as formats
from cafcat.formats.base import Format

__all__ = ["MEMBER_FORMATS", "export_format", "format_of_output", "format_of_suffix"]


MEMBER_FORMATS: Final = ("tar", "zip")
"""Formats that an export can write, but that chunks cannot have."""

_COMPRESSED_TARS: Final = {
    ".tar.gz": "gzip",
    ".tgz": "gzip",
    ".tar.zst": "zstd",
    ".tar.xz": "xz",
    ".tar.bz2": "bzip2",
}
"""Suffixes of compressed tars, each with the program that compresses."""


def export_format(output: Path | None, name: str | None, prefixes: Sequence[str]) -> str:
    """Return the name of the format for an export. This does not check whether the format can be written.

    Args:
        output: path of the new archive; None for a stream.
        name: name of the format; None to choose the format by the suffix of the file name, in any case of letters.
        prefixes: the exported folders and files, for a message that proposes another command.

    Raises:
        InvalidInput: no format has this name, the file name has the suffix of no format, or a stream has no name of
            a format.
    """
    if name in MEMBER_FORMATS:
        return name
    if name is not None:
        try:
            return formats.validate_name(name)
        except InvalidInput as error:
            names = sorted([*MEMBER_FORMATS, *(one.name for one in formats.all_formats() if _is_writable(one))])
            error.hint = f"available formats: {', '.join(names)}"
            raise
    if output is None:
        raise InvalidInput("the archive has no file name that shows its format", hint="use --format tar")
    for suffix in MEMBER_FORMATS:
        if output.name.lower().endswith(f".{suffix}"):
            return suffix
    _refuse_compressed(output, prefixes)
    return _by_suffix(output, [f"{name} (.{name})" for name in MEMBER_FORMATS]).name


def format_of_suffix(output: Path) -> str | None:
    """Return the name of the format whose suffix a file name has; None if no format has it."""
    suffixes = {f".{name}": name for name in MEMBER_FORMATS} | {
        one.suffix: one.name for one in formats.all_formats()
    }
    return suffixes.get(output.suffix.lower())


def format_of_output(output: Path, name: str | None) -> Format:
    """Return the format for a new archive. This does not check whether the format can be written.

    Args:
        output: path of the new archive.
        name: name of the format; None to choose the format by the suffix of the file name, in any case of letters.

    Raises:
        InvalidInput: no format has this name, or the file name has the suffix of no format.
    """
    return _by_suffix(output) if name is None else formats.by_name(formats.validate_name(name))


def _refuse_compressed(output: Path, prefixes: Sequence[str]) -> None:
    for suffix, program in _COMPRESSED_TARS.items():
        if output.name.lower().endswith(suffix):
            export = shlex.join(["cafcat", "export", *prefixes, "-o", "-", "--format", "tar"])
            line = f"{export} | {program} > {shlex.quote(str(output))}"
            raise InvalidInput(f"cafcat cannot compress a tar ({suffix})", path=str(output), hint=f"use `{line}`")


def _by_suffix(output: Path, others: Sequence[str] = ()) -> Format:
    """Return the format whose suffix a file name has.

    Args:
        output: path of the new archive.
        others: further formats for the hint of the error.

    Raises:
        InvalidInput: the file name has the suffix of no format.
    """
    for archive_format in formats.all_formats():
        if output.name.lower().endswith(archive_format.suffix):
            return archive_format
    writable = [one for one in formats.all_formats() if _is_writable(one)]
    choices = sorted([*others, *(f"{one.name} ({one.suffix})" for one in writable)])
    hint = f"give the file one of these suffixes, or use --format: {', '.join(choices)}"
    raise InvalidInput("the file name of the new archive has no known suffix", path=str(output), hint=hint)


def _is_writable(archive_format: Format) -> bool:
    try:
        formats.for_writing(archive_format.name)
    except (NotInstalled, Unsupported):
        return False
    return True
