"""The bytes of a tar archive: from a file, in any order; or from a stream, once, decompressed on the way.

Two limits protect against hostile data: the output of one step of decompression, and the memory for xz data.
"""

import os
from collections.abc import Callable, Iterator
from itertools import chain
from typing import BinaryIO, Final, NamedTuple, Protocol, Self

from cafcat.errors import SourceFailed
from cafcat.model import ProblemKind
from cafcat.sources.local.files import OPEN_FLAGS, problem_kind, reason
from cafcat.sources.names import printable
from cafcat.sources.tar.headers import BLOCK_BYTES, cut, damaged, is_header

__all__ = [
    "FileInput",
    "OpenArchive",
    "State",
    "StreamInput",
    "decompressed",
    "open_archive",
    "open_stream",
    "read_at",
]

_WINDOW_BYTES: Final = 64 << 10
"""How many bytes are read at once for a header: the headers of small files are close together."""
_PIECE_BYTES: Final = 256 << 10
"""Largest piece of a stream in bytes, before and after decompression."""
_XZ_MEMORY_BYTES: Final = 256 << 20
"""Most memory for decompressing xz data, in bytes. `xz -9` needs 64 MiB."""


class State(NamedTuple):
    """Properties of an archive's file that show whether it has changed.

    The status change time is not used: a new link to the archive changes it, too.

    Attributes:
        device: Device of the file.
        inode: Inode of the file.
        size_bytes: Size of the file.
        modified_ns: Time of the last modification, in nanoseconds since 1970 UTC.
    """

    device: int
    inode: int
    size_bytes: int
    modified_ns: int

    @classmethod
    def of(cls, descriptor: int) -> Self:
        """Return the present state of an open file. Raises SourceFailed if the system does not show it."""
        try:
            status = os.fstat(descriptor)
        except OSError as error:
            raise _unreadable(error, "looked at") from error
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    def root(self, typed: str) -> str:
        """Return the root of the members of an archive in this state: its path, size and time (`RootedSource`)."""
        return printable(f"{os.path.abspath(typed)} of {self.size_bytes} bytes, {self.modified_ns} ns since 1970")

    def check(self, descriptor: int) -> None:
        """Raise SourceFailed if device, inode, size or time of an open file now differ from this state."""
        now = State.of(descriptor)
        if now != self:
            sizes = f"{self.size_bytes:,} bytes when listed, {now.size_bytes:,} now"
            message = f"the archive has changed while it was read ({sizes}): ingest it again"
            raise SourceFailed(message, problem=ProblemKind.CHANGED.value)


def open_archive(typed: str) -> int:
    """Open an archive for reading, and return its descriptor. Raises SourceFailed if it cannot be opened."""
    try:
        return os.open(typed, OPEN_FLAGS)
    except (OSError, ValueError) as error:  # ValueError: a NUL byte
        raise _unreadable(error, "opened") from error


def open_stream(typed: str) -> BinaryIO:
    """Open an archive to read it front to back, without a buffer. Raises SourceFailed if it cannot be opened."""
    descriptor = open_archive(typed)
    try:
        return os.fdopen(descriptor, "rb", buffering=0)
    except OSError as error:
        os.close(descriptor)
        raise _unreadable(error) from error


def read_at(descriptor: int, size_bytes: int, start_byte: int) -> bytes:
    """Return bytes from an offset on; fewer only at the end of the file. Raises SourceFailed if reading fails."""
    parts: list[bytes] = []
    while size_bytes:
        try:
            data = os.pread(descriptor, size_bytes, start_byte)
        except OSError as error:
            raise _unreadable(error) from error
        if not data:
            break
        parts.append(data)
        size_bytes -= len(data)
        start_byte += len(data)
    return parts[0] if len(parts) == 1 else b"".join(parts)


class OpenArchive:
    """The bytes of an opened archive that is read front to back, still compressed if the archive is."""

    def __init__(self, stream: BinaryIO, state: State | None = None) -> None:
        """Begin at the position of the stream.

        Args:
            stream: The bytes of the archive.
            state: State of the file when it was opened; None if the stream is not a file.
        """
        self._stream = stream
        self._state = state

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes as they arrive, at most 256 KiB at once.

        Raises:
            SourceFailed: Reading fails, or the stream was closed.
        """
        read = getattr(self._stream, "read1", self._stream.read)
        while True:
            try:
                piece = read(_PIECE_BYTES)
            except (OSError, ValueError) as error:  # ValueError: the stream was closed
                raise _unreadable(error) from error
            if not piece:
                return
            yield piece

    def check(self) -> None:
        """Raise SourceFailed if the file has changed since it was opened. For another stream, do nothing."""
        if self._state is not None:
            self._state.check(self._stream.fileno())

    def explained(self, error: SourceFailed) -> SourceFailed:
        """Return the error that explains a failed read to the user.

        If the archive has changed since it was opened, that looks like damage. The result is then the error for a
        changed archive; else `error`.
        """
        try:
            self.check()
        except SourceFailed as changed:
            return changed
        return error


class FileInput:
    """The bytes of an uncompressed tar archive in an open file, from `position_byte` on: an Input."""

    def __init__(self, descriptor: int, size_bytes: int, position_byte: int = 0) -> None:
        self.position_byte = position_byte
        self._descriptor = descriptor
        self._size_bytes = size_bytes
        self._window = b""
        self._window_start = 0

    def read(self, size_bytes: int) -> bytes:
        """Return the next `size_bytes` bytes of the archive; fewer only at the end of the file."""
        begin = self.position_byte - self._window_start
        if begin < 0 or begin + size_bytes > len(self._window):
            self._window = read_at(self._descriptor, max(size_bytes, _WINDOW_BYTES), self.position_byte)
            self._window_start, begin = self.position_byte, 0
        data = self._window[begin : begin + size_bytes]
        self.position_byte += len(data)
        return data

    def skip_to(self, byte: int) -> None:
        """Move to an offset of the archive. Raises SourceFailed if the offset is beyond the end of the file."""
        self.check_holds(byte, "a member")
        self.position_byte = byte

    def check_holds(self, end_byte: int, what: str) -> None:
        """Raise SourceFailed if the file ends before an offset of the archive."""
        if end_byte > self._size_bytes:
            raise cut(self._size_bytes, end_byte, what)


class StreamInput:
    """The bytes of a tar archive that arrive in pieces, and are read once: an Input.

    After an error of the stream, each call that needs another piece raises this error again.
    """

    def __init__(self, stream: Iterator[bytes]) -> None:
        self.position_byte = 0
        self._stream = stream
        self._piece = b""
        self._used = 0
        self._error: SourceFailed | None = None

    def read(self, size_bytes: int) -> bytes:
        """Return the next `size_bytes` bytes of the archive; fewer only at the end of the stream."""
        end = self._used + size_bytes
        if end <= len(self._piece):
            data = self._piece[self._used : end]
            self._used = end
        else:
            data = b"".join(self._parts(size_bytes))
        self.position_byte += len(data)
        return data

    def skip_to(self, byte: int) -> None:
        """Read up to an offset of the archive. Raises SourceFailed if the stream ends before."""
        for part in self._parts(byte - self.position_byte):
            self.position_byte += len(part)
        if self.position_byte < byte:
            raise cut(self.position_byte, byte, "a member")

    def check_holds(self, end_byte: int, what: str) -> None:
        """Do nothing: the end of a stream is not known in advance."""

    def _parts(self, size_bytes: int) -> Iterator[bytes]:
        while size_bytes:
            part = self._piece[self._used : self._used + size_bytes]
            if not part and not self._has_next():
                return
            self._used += len(part)
            size_bytes -= len(part)
            yield part

    def _has_next(self) -> bool:
        if self._error is not None:
            raise self._error
        try:
            self._piece = next(self._stream, b"")
        except SourceFailed as error:
            self._error = error
            raise
        self._used = 0
        return bool(self._piece)


class _Engine(Protocol):
    """A decompressor for one part of a compressed stream, as the decompressor classes of bz2 and lzma are."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _GzipEngine:
    """Decompresses one part of a gzip stream with zlib, which checks its length and CRC-32: an _Engine."""

    def __init__(self) -> None:
        import zlib

        self._engine = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        self.needs_input = True

    def decompress(self, data: bytes, max_length: int) -> bytes:
        output = self._engine.decompress(self._engine.unconsumed_tail + data, max_length)
        self.needs_input = not self._engine.unconsumed_tail
        return output

    @property
    def eof(self) -> bool:
        return self._engine.eof

    @property
    def unused_data(self) -> bytes:
        return self._engine.unused_data


def _gzip() -> tuple[_Engine, type[Exception]]:
    import zlib

    return _GzipEngine(), zlib.error


def _bzip2() -> tuple[_Engine, type[Exception]]:
    import bz2

    return bz2.BZ2Decompressor(), OSError


def _xz() -> tuple[_Engine, type[Exception]]:
    import lzma

    return lzma.LZMADecompressor(memlimit=_XZ_MEMORY_BYTES), lzma.LZMAError


def _zstd() -> tuple[_Engine, type[Exception]]:
    from importlib import import_module

    zstd = import_module("compression.zstd")  # since Python 3.14
    return zstd.ZstdDecompressor(), zstd.ZstdError


class Compression(NamedTuple):
    """A kind of compression of tar archives, such as gzip.

    A compressed stream has one or more parts, each compressed on its own.

    Attributes:
        name: Name for messages.
        magics: Each part begins with one of these byte strings.
        begin: Returns a new decompressor for one part, and the type of the exceptions that it raises.
    """

    name: str
    magics: tuple[bytes, ...]
    begin: Callable[[], tuple[_Engine, type[Exception]]]


_COMPRESSIONS: Final = (
    Compression("gzip", (b"\x1f\x8b\x08",), _gzip),
    Compression("bzip2", (b"BZh",), _bzip2),
    Compression("xz", (b"\xfd7zXZ\0",), _xz),
    # A frame, or one of those that a reader skips (RFC 8878, 3.1).
    Compression("zstd", (b"\x28\xb5\x2f\xfd", *(bytes([n]) + b"\x2a\x4d\x18" for n in range(0x50, 0x60))), _zstd),
)


def _compression_of(head: bytes) -> Compression | None:
    """Return the compression of data that begins with these bytes; None if the data is not compressed."""
    return next((found for found in _COMPRESSIONS if head.startswith(found.magics)), None)


def decompressed(stream: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the contents of a stream in pieces, decompressed if the stream is compressed.

    A stream that begins with a header of an archive is not compressed, even if the first name looks like compressed
    data, such as "BZhang".

    Raises:
        SourceFailed: The compressed data is damaged or cut, or this Python does not support the compression.
    """
    head = b""
    while len(head) < BLOCK_BYTES and (piece := next(stream, b"")):
        head += piece
    stream = chain([head] if head else [], stream)
    found = None if is_header(head[:BLOCK_BYTES]) else _compression_of(head)
    yield from stream if found is None else _decompressed(stream, found)


def _decompressed(stream: Iterator[bytes], found: Compression) -> Iterator[bytes]:
    """Yield the decompressed contents of a stream of one or more compressed parts.

    Zeros between and behind the parts are skipped. Other data after a part ends the contents and is ignored, as by
    gzip.

    Args:
        stream: The compressed bytes.
        found: How they are compressed.

    Raises:
        SourceFailed: The data is damaged or cut, or this Python does not support the compression.
    """
    engine: _Engine | None = None
    failure: type[Exception] = Exception
    rest = b""
    for piece in stream:
        rest += piece
        while rest or (engine is not None and not engine.needs_input):
            if engine is None:
                rest = rest.lstrip(b"\0")
                if len(rest) < max(map(len, found.magics)):
                    break
                if not rest.startswith(found.magics):
                    return
                engine, failure = _begin(found)
            output = _step(engine, failure, rest, found)
            rest = b""
            if engine.eof:
                rest, engine = engine.unused_data, None
            if output:
                yield output
    if engine is not None:
        raise damaged(f"the {found.name} data is cut: it ends too early")


def _begin(found: Compression) -> tuple[_Engine, type[Exception]]:
    try:
        return found.begin()
    except ImportError as error:
        message = (
            f"the archive is compressed with {found.name}, which this Python does not support: decompress it first"
        )
        raise SourceFailed(message) from error


def _step(engine: _Engine, failure: type[Exception], data: bytes, found: Compression) -> bytes:
    try:
        return engine.decompress(data, _PIECE_BYTES)
    except failure as error:
        raise damaged(f"the {found.name} data is damaged: {error}") from error


def _unreadable(error: OSError | ValueError, verb: str = "read") -> SourceFailed:
    if isinstance(error, OSError):
        message = f"the archive cannot be {verb}: {reason(error)}"
        return SourceFailed(message, problem=problem_kind(error).value)
    return SourceFailed(f"the archive cannot be {verb}: {error}")
