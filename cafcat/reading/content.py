"""Makes the content of a file from the bytes of its chunk: decodes it, cuts ranges, and compares the checksum."""

from collections.abc import Iterator

from cafcat.errors import Corrupt
from cafcat.model import Entry, Location
from cafcat.reading.request import ReadRequest
from cafcat.support.checksums import crc32c

__all__ = ["Damaged", "check", "checked", "cut", "decode", "decoded"]


class Damaged(Corrupt):
    """A file proved to be damaged at its end, when the caller may have all of its content but the last block.

    A caller that can discard this content may read the file again from another replica.
    """


def check(location: Location, found: int) -> None:
    """Compare the CRC-32C of a file's content with the one in the catalog.

    Args:
        location: Where the file is.
        found: CRC-32C of the content that was read.

    Raises:
        Corrupt: They differ.
    """
    if found != location.crc32c:
        message = f"the file's bytes are damaged: CRC-32C {found:08x}, the catalog has {location.crc32c:08x}"
        raise Corrupt(message, path=location.path, chunk=str(location.chunk), byte=location.start_byte)


def checked(location: Location, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the blocks of a whole file, but the last block only if the checksum of the file is right.

    Args:
        location: Where the file is, with its checksum.
        blocks: The whole content of the file.

    Raises:
        Damaged: The checksum is wrong. All blocks but the last one have been yielded then.
    """
    checksum = 0
    last = b""
    for block in blocks:
        if last:
            yield last
        checksum = crc32c(block, checksum)
        last = block
    try:
        check(location, checksum)
    except Corrupt as error:
        raise Damaged(error.message, path=error.path, chunk=error.chunk, byte=error.byte) from None
    if last:
        yield last


def decode(location: Location, span: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the decoded content of a file in blocks. Its checksum is not compared.

    Args:
        location: Where the file is, with its format and decoding.
        span: The bytes of the file's span in the chunk, in blocks of any size.

    Raises:
        Corrupt: The bytes are not valid in the format.
        NotInstalled, Unsupported: The format cannot be decoded here.
    """
    from cafcat.formats.registry import by_name  # most files are not decoded

    path, start, end, checksum, modified_ns, _, _, _, name, content_bytes, decoding = location
    entry = Entry(path, start, end, checksum, modified_ns, content_bytes, decoding)
    return by_name(name).decode(span, entry)


def decoded(request: ReadRequest, span: bytes) -> bytes:
    """Decode a file, compare all of its content with its checksum, and return the requested bytes.

    Args:
        request: The file and the requested range of its decoded content; a `decoded_range` of None is all of it.
        span: All bytes of the file's span in the chunk.

    Raises:
        Corrupt: The bytes are not valid in the format, or the checksum is wrong.
        NotInstalled, Unsupported: The format cannot be decoded here.
    """
    content = b"".join(decode(request.location, iter((span,))))
    check(request.location, crc32c(content))
    return content if request.decoded_range is None else content[slice(*request.decoded_range)]


def cut(blocks: Iterator[bytes], content_range: tuple[int, int]) -> Iterator[bytes]:
    """Yield the bytes `[start, end)` of a file's content.

    `blocks` is iterated to its end, also behind the range. An iterator that compares the checksum at the end of the
    content therefore does so.

    Args:
        blocks: The whole content of the file, in blocks.
        content_range: Start and end, in bytes from the start of the content.
    """
    start, end = content_range
    position = 0
    for block in blocks:
        part = block[max(0, start - position) : max(0, end - position)]
        position += len(block)
        if part:
            yield part
