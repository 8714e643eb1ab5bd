"""What needs no catalog: archives inspected and converted, wherever they are."""

import os
from typing import TYPE_CHECKING

from cafcat.progress import Progress
from cafcat.settings.settings import Settings

if TYPE_CHECKING:
    from cafcat.archives.opening import OpenArchive
    from cafcat.formats.format_choice import FormatChoice
    from cafcat.operations.convert.run import ConvertReport
    from cafcat.operations.inspect.run import Inspection

__all__ = ["convert", "inspect"]


def inspect(
    file: str | os.PathLike[str],
    settings: Settings | None = None,
    *,
    format: str | None = None,
    zero_padding: bool = False,
) -> "Inspection":
    """List an archive without any catalog.

    Args:
        file: a file (a path or file:// URL), "s3://bucket/key", or a folder or prefix that is one archive in
            several files.
        settings: how the bucket is reached; by default, from environment, cafcat.toml and defaults.
        format: name of the archive's format; by default, its content tells. A damaged head may need this.
        zero_padding: a section of size zero is the end of a CAR, as in archives that Filecoin pads.

    Raises:
        NotFound, Corrupt, Unsupported, InvalidInput, AccessDenied, StoreFailed.
    """
    from cafcat.formats.format_choice import FormatChoice
    from cafcat.operations.inspect.run import inspect_archive

    return inspect_archive(_archive(file, settings, FormatChoice(format, zero_padding)))


def convert(
    input: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    format: str | None = None,
    overwrite: bool = False,
    settings: Settings | None = None,
    progress: Progress | None = None,
    input_format: str | None = None,
    zero_padding: bool = False,
) -> "ConvertReport":
    """Write an archive anew in another format, or in the same.

    Names, contents, times and checksums stay the same, in the order of the bytes. Every content is checked against
    the checksums of the archive. A clp-s archive can only become a clp-s archive, byte for byte. `output` appears
    whole and durable, or not at all.

    Args:
        input: an archive, named as for `inspect`.
        output: the file to write.
        format: of the new archive; by default, the format whose suffix the output's name ends with.
        overwrite: replace an existing file.
        settings: as in `inspect`.
        progress: where to report.
        input_format: of the archive that is read, as `format` in `inspect`.
        zero_padding: as in `inspect`.

    Raises:
        Corrupt: an entry is damaged.
        Conflict: the output exists and overwrite is false.
        Refused: the format cannot have a name.
        Unsupported, InvalidInput, OutputFailed: and as `inspect`.
    """
    from cafcat.formats.format_choice import FormatChoice
    from cafcat.operations.convert.run import convert_archive
    from cafcat.session import output_of

    archive = _archive(input, settings, FormatChoice(input_format, zero_padding))
    target = output_of(settings, output, overwrite=overwrite)
    return convert_archive(archive, target, format, progress=progress or Progress())


def _archive(
    where: str | os.PathLike[str], settings: Settings | None, format_choice: "FormatChoice"
) -> "OpenArchive":
    from cafcat.archives.naming import archive_address
    from cafcat.archives.opening import open_archive
    from cafcat.stores.kind import StoreContext
    from cafcat.stores.registry import kind_of

    address = archive_address(os.fspath(where))
    # A local file can be opened whatever the configuration says, because its kind of store has no options.
    has_options = bool(kind_of(address.store_url).options)
    context = (settings or Settings.load()).store_context(address.name) if has_options else StoreContext()
    return open_archive(address, context, format_choice)
