"""Chooses the format of a new archive from its file name, or from the name that the user gave."""

from pathlib import Path

from cafcat.errors import InvalidInput, NotInstalled, Unsupported
from cafcat.formats import registry as formats
from cafcat.formats.base import Format

__all__ = ["format_of_output"]


def format_of_output(output: Path, name: str | None) -> Format:
    """Return the format for a new archive. This does not check whether the format can be written.

    Args:
        output: path of the new archive.
        name: name of the format; None to choose the format by the suffix of the file name, in any case of letters.

    Raises:
        InvalidInput: no format has this name, or the file name has the suffix of no format.
    """
    if name is not None:
        return formats.by_name(formats.validate_name(name))
    for archive_format in formats.all_formats():
        if output.name.lower().endswith(archive_format.suffix):
            return archive_format
    writable = [one for one in formats.all_formats() if _is_writable(one)]
    choices = sorted(f"{one.name} ({one.suffix})" for one in writable)
    hint = f"give the file one of these suffixes, or use --format: {', '.join(choices)}"
    raise InvalidInput("the file name of the new archive has no known suffix", path=str(output), hint=hint)


def _is_writable(archive_format: Format) -> bool:
    try:
        formats.for_writing(archive_format.name)
    except (NotInstalled, Unsupported):
        return False
    return True
