"""Inspects and converts archives on disk or in a bucket, without a catalog."""

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
    """Open an archive to list the files in it, without any catalog.

    Args:
        file: A file (a path or file:// URL), "s3://bucket/key", or a folder or prefix that is one archive in
            several files.
        settings: How a bucket is reached; None for the settings of environment, cafcat.toml and defaults. They are
            not needed for a local archive.
        format: Name of the archive's format; None: it is found by the content. Give it if the head of the archive
            is damaged.
        zero_padding: True if a section of size zero is the end of a CAR, as in archives that Filecoin pads.

    Returns:
        The archive, with its entries.

    Raises:
        NotFound: There is no such file or object.
        Corrupt: The archive is damaged. Some damage is found only when the entries are iterated.
        Unsupported: The format is unknown, or this version cannot read it.
        NotInstalled: A library is missing that the format needs.
        InvalidInput: The name, the format or a setting is invalid, or a folder is no archive.
        AccessDenied, StoreFailed: The store cannot be read.
        Conflict: The archive was changed or replaced while it was read.
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
    """Write the files of an archive into a new archive, in another format or the same one, without any catalog.

    Names and contents stay the same, and so do times and checksums, if both formats record them. The contents keep
    their order, and are compared with the checksums in the archive. A clp-s archive can only become a clp-s
    archive. The output appears complete and durable, or not at all.

    Args:
        input: The archive to read: a file (a path or file:// URL), "s3://bucket/key", or a folder or prefix that is
            one archive in several files.
        output: Name of the file to write.
        format: Format of the new archive; None for the format that belongs to the suffix of the output's name.
        overwrite: True to replace an existing file.
        settings: How a bucket is reached; None for the settings of environment, cafcat.toml and defaults.
        progress: Receives the progress and warnings; None: they are dropped. Its `stopping` and `checkpoint` are
            not used, but an exception of its other methods ends the conversion.
        input_format: Format of the archive that is read; None: it is found by the content.
        zero_padding: True if a section of size zero is the end of a CAR, as in archives that Filecoin pads.

    Returns:
        Names and formats of both archives, the number and size of the files, and the size of the new archive.

    Raises:
        Corrupt: The index or an entry of the archive is damaged.
        Conflict: The output exists and overwrite is false, or is a folder; or the archive was changed meanwhile.
        Refused: The new format cannot store a file of the archive, because of its name or size.
        OutputFailed: The output cannot be written.
        Unsupported, NotInstalled: The archive cannot be read, or the new format cannot be written.
        InvalidInput: As `inspect` raises it; or the output is a device, pipe or socket; or `format` is None, and
            the name of the output has no known suffix.
        NotFound, AccessDenied, StoreFailed: As `inspect` raises them.
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
