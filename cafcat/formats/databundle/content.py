"""Reads files in both kinds of DataBundle: a single shard file with its own table, and the shards of a bundle."""

from collections.abc import Iterator

from cafcat.formats.base import RandomReader
from cafcat.formats.databundle.bundles.record_decoding import decode_records
from cafcat.formats.databundle.decoding import decode
from cafcat.formats.reading import read_span, verified_content
from cafcat.model import Entry

__all__ = ["FileReader", "decode_content"]


def decode_content(span: Iterator[bytes], entry: Entry, chunk: str | None = None) -> Iterator[bytes]:
    """Return the content of a DataBundle entry that has a `decoding`, in blocks of at most 1 MiB.

    The CRC-32C of the entry is not checked. See `decoding.decode` for chunks of cafcat, and
    `record_decoding.decode_records` for shards of bundles.

    Args:
        span: the bytes of the entry's span, in blocks of any size. No other bytes of the archive are read.
        entry: the entry.
        chunk: name of the archive, for messages; None if it is unknown.

    Raises:
        Corrupt: the bytes of the span are damaged, or the entry was listed with invalid records.
        Unsupported: the decoding is unknown, or the entry can only be listed.
        NotInstalled: a library for the compression is not installed.
    """
    is_own = (entry.decoding or "").startswith("deflate ")
    return decode(span, entry, chunk) if is_own else decode_records(span, entry, chunk)


class FileReader:
    """Reads the content of files in one DataBundle shard file, given the entries of the files.

    Base class of DataBundleReader and BundleShard.
    """

    def __init__(self, archive: RandomReader) -> None:
        self._archive = archive

    def open(self, entry: Entry) -> Iterator[bytes]:
        """Yield the content of an entry in blocks of at most 1 MiB. Errors of `archive.read_at` pass through.

        Raises:
            Corrupt: the data is damaged, or its size or CRC-32C is wrong. Raised after the last block at the
                latest.
            Unsupported: the decoding is unknown, or the entry can only be listed.
            NotInstalled: a library for the compression is not installed.
        """
        yield from verified_content(self._content(entry), entry, self._archive, "archive")

    def _content(self, entry: Entry) -> Iterator[bytes]:
        span = read_span(self._archive, entry)
        return span if entry.decoding is None else decode_content(span, entry, self._archive.name)
