"""Files that are not in their chunk as they are: the chunk's format makes them of the bytes of their span."""

from collections.abc import Iterator

from cafcat.model import Entry, Location
from cafcat.reading.checking import check, checked
from cafcat.reading.request import ReadRequest
from cafcat.support.checksums import crc32c

__all__ = ["decoded", "decoded_blocks"]


def decoded(wanted: ReadRequest, span: bytes) -> bytes:
    """What is wanted of the file, all of which is checked. Raises Corrupt."""
    assert wanted.part is not None  # noqa: S101 - a file that has to be decoded is wanted by parts
    content = b"".join(_content(wanted.location, iter((span,))))
    check(wanted.location, crc32c(content))
    return content[slice(*wanted.part)]


def decoded_blocks(wanted: ReadRequest, span: Iterator[bytes]) -> Iterator[bytes]:
    """The same in blocks; the span in blocks of any size. Raises Damaged in place of the last block if only the
    checksum is wrong; Corrupt."""
    assert wanted.part is not None  # noqa: S101
    begin, end = wanted.part
    position = 0
    for block in checked(wanted.location, _content(wanted.location, span)):
        part = block[max(0, begin - position) : max(0, end - position)]
        position += len(block)
        if part:
            yield part


def _content(location: Location, span: Iterator[bytes]) -> Iterator[bytes]:
    from cafcat.formats.registry import by_name  # most files need none of it

    path, start, end, checksum, modified_ns, _, _, _, name, content_bytes, decoding = location
    entry = Entry(path, start, end, checksum, modified_ns, content_bytes, decoding)
    return by_name(name).decode(span, entry)
