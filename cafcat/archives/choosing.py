"""Which format a new archive gets."""

from pathlib import Path

from cafcat.errors import InvalidInput, NotInstalled, Unsupported
from cafcat.formats import registry as formats
from cafcat.formats.base import Format

__all__ = ["format_of_output"]


def format_of_output(output: Path, name: str | None) -> Format:
    """The format of that name, or else the one whose suffix the file's name ends with. Raises InvalidInput if
    there is no such format, or the file's name tells none."""
    if name is not None:
        return formats.by_name(formats.validate_name(name))
    for archive_format in formats.all_formats():
        if output.name.lower().endswith(archive_format.suffix):
            return archive_format
    choices = sorted(f"{known.name} ({known.suffix})" for known in formats.all_formats() if _is_writable(known))
    hint = f"give its name one of these suffixes, or say --format: {', '.join(choices)}"
    raise InvalidInput("the name of the new archive does not tell its format", path=str(output), hint=hint)


def _is_writable(archive_format: Format) -> bool:
    try:
        formats.for_writing(archive_format.name)
    except (NotInstalled, Unsupported):
        return False
    return True
