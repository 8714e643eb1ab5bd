"""The arguments and flags of `cafcat ingest --estimate` and `Repository.estimate`."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from cafcat.errors import InvalidInput
from cafcat.scanning.opening import SourceOptions

__all__ = ["EstimateOptions"]


@dataclass(frozen=True, slots=True)
class EstimateOptions(SourceOptions):
    """Estimate what an ingest of sources needs: objects, bytes, requests, dollars and hours. Nothing is written.

    A source whose listing is short is counted. Of any other, parts of the listing are read. The files that the
    catalog has already are counted, too.

    Attributes:
        sources: Folders, files and s3:// URLs, as for an ingest.
        files_from: File that lists the names and URLs of further files, one per line; "-" is standard input.
        null_separated: The names in `files_from` end with NUL instead of newline.
        prefix: Folder of the catalog that is put before the names of all files.
        include: Patterns as in gitignore: only count matching files.
        exclude: Patterns as in gitignore: leave out matching files.
        follow_symlinks: Count the files that symbolic links point to.
        inventory: Manifest of an S3 Inventory, which is read completely.
        format: Name of the format of the chunks.
        target_size: Size in bytes at which a chunk is full; None for the setting `target_size`.
        prices: File with a price list; None for that of Amazon S3 in us-east-1.
        bandwidth: Most bytes per second that the ingest may read; None for the setting `bandwidth`.
        pages: About how many pages of the listing of a large source are read.
        read_seconds: How long files are read to measure the speed, in seconds; 0 to read none.
    """

    sources: Sequence[str | os.PathLike[str]] = ()
    format: str = field(default="caf", kw_only=True)
    target_size: int | None = field(default=None, kw_only=True)
    prices: str | os.PathLike[str] | None = field(default=None, kw_only=True)
    bandwidth: int | None = field(default=None, kw_only=True)
    pages: int = field(default=200, kw_only=True)
    read_seconds: float = field(default=5.0, kw_only=True)

    def check(self) -> None:
        """Raise InvalidInput for no source, and for values below their limits."""
        if isinstance(self.sources, str | bytes | os.PathLike):
            raise InvalidInput("sources must be a list of names", hint=f"write [{os.fspath(self.sources)!r}]")
        if not self.sources and self.files_from is None:
            hint = "name a folder or a URL, or give a list of names with --files-from"
            raise InvalidInput("no source to estimate is given", hint=hint)
        if self.pages < 1 or self.read_seconds < 0:
            raise InvalidInput("pages must be at least 1, and read_seconds at least 0")
        if self.bandwidth is not None and self.bandwidth < 1:
            raise InvalidInput(f"--bandwidth must be at least 1 byte per second, not {self.bandwidth}")
