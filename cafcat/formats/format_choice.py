"""Chooses the format to read an archive with: detected from the content of the archive, or named by the user."""

from typing import Final, NamedTuple

from cafcat.errors import InvalidInput
from cafcat.formats import registry
from cafcat.formats.base import AllowsZeroPadding, Format, RandomReader

__all__ = ["DETECT_FORMAT", "FormatChoice", "allow_zero_padding"]


class FormatChoice(NamedTuple):
    """The format to read archives with, and whether they may be padded with zeros.

    Attributes:
        format: name of the format, or None to detect it from the content.
        zero_padding: True if archives may end with zeros, as go-car's option ZeroLengthSectionAsEOF allows.
    """

    format: str | None = None
    zero_padding: bool = False

    def format_of(self, archive: RandomReader) -> Format:
        """Return the chosen format, or detect the format from the archive's first and last bytes.

        With `zero_padding`, the result is the variant of this format that accepts zeros at the end.

        Raises:
            InvalidInput: no format has the chosen name, or `zero_padding` is True and there is no such variant.
            Corrupt: the archive is too small for any format, or is named like a CAF but does not end like one.
            Unsupported: no format recognizes the archive.
        """
        chosen = registry.detect(archive) if self.format is None else self._named(self.format)
        return self._with_padding(chosen)

    def check_folder(self, name: str, found: Format) -> None:
        """Check that this choice allows the format of an archive that consists of all files of a folder.

        Args:
            name: path or URL of the folder, for messages.
            found: format of the archive in the folder.

        Raises:
            InvalidInput: another format was chosen, no format has the chosen name, or `zero_padding` is True and
                archives of the format cannot have zero padding.
        """
        if self.format is not None and self._named(self.format).name != found.name:
            raise InvalidInput(f"the folder is an archive of the format {found.name}, not {self.format}", path=name)
        self._with_padding(found)

    def _named(self, name: str) -> Format:
        return registry.by_name(registry.validate_name(name))

    def _with_padding(self, chosen: Format) -> Format:
        if not self.zero_padding:
            return chosen
        if not isinstance(chosen, AllowsZeroPadding):
            message = f"archives of the format {chosen.name} cannot have zero padding; only CAR archives can"
            raise InvalidInput(message, hint="leave out --zero-padding")
        return chosen.with_zero_padding()


DETECT_FORMAT: Final = FormatChoice()
"""Detect the format of an archive from its content; the archive may not be padded with zeros."""


def allow_zero_padding(archive_format: Format) -> Format:
    """Return the variant of a format that accepts zeros at the end of archives; without such a variant, the format.

    This is for archives that the catalog has already: `cafcat adopt` may have accepted their zero padding.
    """
    return archive_format.with_zero_padding() if isinstance(archive_format, AllowsZeroPadding) else archive_format
