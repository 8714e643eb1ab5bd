"""What needs no catalog: archives inspected and converted, wherever they are."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from cafcat.progress import Progress
from cafcat.settings import Settings

if TYPE_CHECKING:
    from cafcat.archives.convert import ConvertReport
    from cafcat.archives.inspecting import Inspection
    from cafcat.archives.opening import OpenArchive
    from cafcat.remote.access import S3Access

__all__ = ["convert", "inspect"]


def inspect(file: str | os.PathLike[str], settings: Settings | None = None) -> "Inspection":
    """Lists an archive, a file (a path or file:// URL) or "s3://bucket/key", without any catalog; or a folder or
    prefix that is one archive in several files. Its format is told by its content.
    settings: how the bucket is reached; by default, those that environment, cafcat.toml and defaults give. Raises
    NotFound, Corrupt, Unsupported, InvalidInput, AccessDenied, StoreFailed."""
    from cafcat.archives.inspecting import look_into

    return look_into(_archive(file, settings))


def convert(
    input: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    format: str | None = None,
    overwrite: bool = False,
    settings: Settings | None = None,
    progress: Progress | None = None,
) -> "ConvertReport":
    """Writes an archive, named as for `inspect`, anew in a format: the one that is named, or else the one whose
    suffix the output's name ends with. Names, contents, times and checksums are the same, in the order of the
    bytes; every content is checked against what the archive says of it. A clp-s archive comes of one only, byte for
    byte.

    `output` appears whole and durable, or not at all. Raises Corrupt for the first damaged entry, Conflict if
    output is there and overwrite is false, Unsupported, InvalidInput, Refused for a name that the format cannot
    have, OutputFailed, and as `inspect`.
    """
    from cafcat.archives.convert import convert_archive

    archive = _archive(input, settings)
    return convert_archive(archive, Path(output), format, overwrite=overwrite, progress=progress or Progress())


def _archive(where: str | os.PathLike[str], settings: Settings | None) -> "OpenArchive":
    from cafcat.archives.opening import open_archive

    def access(url: str) -> "S3Access":
        return (settings or Settings.load()).access(url)

    return open_archive(where, access)
