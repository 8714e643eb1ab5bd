"""Reads the content of files in any DataBundle: in chunks of cafcat and in shards of bundles."""

from collections.abc import Iterator

from cafcat.formats.base import RandomReader
from cafcat.formats.databundle.bundles.record_decoding import decode_records
from cafcat.formats.databundle.decoding import decode
from cafcat.formats.reading import read_span, verified_content
from cafcat.model import Entry

__all__ = ["FileReader", "decode_content"]


def decode_content(span: Iterator[bytes], entry: Entry, chunk: str | None = None) -> Iterator[bytes]:
    """Return the content of an entry with a `decoding`, in blocks of at most 1 MiB.

    Reads only the bytes of its span.

    See `decoding.decode` for chunks of cafcat, and `record_decoding.decode_records` for shards of bundles.

    Raises:
        Corrupt: the bytes of the span are damaged.
        Unsupported: the decoding is unknown.
    """
    is_own = (entry.decoding or "").startswith("deflate ")
    return decode(span, entry, chunk) if is_own else decode_records(span, entry, chunk)


class FileReader:
    """Reads files of one archive by their entries."""

    def __init__(self, archive: RandomReader) -> None:
        """Read files of this archive."""
        self._archive = archive

    def open(self, entry: Entry) -> Iterator[bytes]:
        """Return the content of an entry in blocks of at most 1 MiB.

        Raises:
            Corrupt: the data is damaged, or its size or CRC-32C is wrong.
            Unsupported: the entry can only be listed.
        """
        yield from verified_content(self._content(entry), entry, self._archive, "archive")

    def _content(self, entry: Entry) -> Iterator[bytes]:
        span = read_span(self._archive, entry)
        return span if entry.decoding is None else decode_content(span, entry, self._archive.name)
