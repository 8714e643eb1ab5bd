"""Decode files that are not in their chunk as they are: the chunk's format makes them from the bytes of a span."""

from collections.abc import Iterator

from cafcat.model import Entry, Location
from cafcat.reading.checking import check
from cafcat.reading.request import ReadRequest
from cafcat.support.checksums import crc32c

__all__ = ["cut", "decode", "decoded"]


def decode(location: Location, span: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the content of a file in blocks.

    Args:
        location: Where the file is.
        span: The bytes of its span, in blocks of any size.

    Raises:
        Corrupt: The bytes are not valid in the format.
        NotInstalled, Unsupported: The format cannot be decoded here.
    """
    from cafcat.formats.registry import by_name  # most files are not decoded

    path, start, end, checksum, modified_ns, _, _, _, name, content_bytes, decoding = location
    entry = Entry(path, start, end, checksum, modified_ns, content_bytes, decoding)
    return by_name(name).decode(span, entry)


def decoded(request: ReadRequest, span: bytes) -> bytes:
    """Return the requested bytes of a file, after all of its content was checked. Raises as `decode` does.

    Args:
        request: A request with a decoded_range.
        span: All bytes of the file's span.
    """
    content = b"".join(decode(request.location, iter((span,))))
    check(request.location, crc32c(content))
    return content if request.decoded_range is None else content[slice(*request.decoded_range)]


def cut(blocks: Iterator[bytes], content_range: tuple[int, int]) -> Iterator[bytes]:
    """Yield the bytes `[start, end)` of a content. All blocks are read, also those behind the range, so that a
    checksum is compared.

    Args:
        blocks: The content, in blocks.
        content_range: Start and end, in bytes from the start of the content.
    """
    start, end = content_range
    position = 0
    for block in blocks:
        part = block[max(0, start - position) : max(0, end - position)]
        position += len(block)
        if part:
            yield part
