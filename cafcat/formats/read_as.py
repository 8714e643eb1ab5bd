"""How an archive is to be read: what its content tells, or what the user says about it."""

from typing import Final, NamedTuple

from cafcat.errors import InvalidInput
from cafcat.formats import registry
from cafcat.formats.base import Format, RandomReader, ZeroPadded

__all__ = ["DETECTED", "ReadAs", "lenient"]


class ReadAs(NamedTuple):
    """How archives are read.

    format: name of their format; None: their content tells. zero_padding: archives may end with zeros, as go-car's
    option ZeroLengthSectionAsEOF allows.
    """

    format: str | None = None
    zero_padding: bool = False

    def of(self, archive: RandomReader) -> Format:
        """Return the format to read an archive with.

        Raises:
            InvalidInput: no format has this name, or its archives have no zero padding.
            Corrupt, Unsupported: the content tells no format; see registry.detect.
        """
        chosen = registry.detect(archive) if self.format is None else self._named(self.format)
        return self._padded(chosen)

    def check_folder(self, name: str, found: Format) -> None:
        """Raise InvalidInput if a folder that is one archive cannot be read this way. name: of the folder."""
        if self.format is not None and self._named(self.format).name != found.name:
            raise InvalidInput(f"the folder is an archive of the format {found.name}, not {self.format}", path=name)
        self._padded(found)

    def _named(self, name: str) -> Format:
        return registry.by_name(registry.asked_for(name))

    def _padded(self, chosen: Format) -> Format:
        if not self.zero_padding:
            return chosen
        if not isinstance(chosen, ZeroPadded):
            message = f"archives of the format {chosen.name} have no zero padding: only CARs have"
            raise InvalidInput(message, hint="leave out --zero-padding")
        return chosen.zero_padded()


DETECTED: Final = ReadAs()
"""The content tells the format."""


def lenient(archive_format: Format) -> Format:
    """Return the format with zero padding allowed, where it has such: for archives that the catalog has already."""
    return archive_format.zero_padded() if isinstance(archive_format, ZeroPadded) else archive_format
