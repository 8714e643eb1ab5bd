"""The position of a binary file that programs move by `seek`."""

import io
import os

__all__ = ["SeekableFile"]


class SeekableFile(io.IOBase):
    """Base class of binary files with a position. A subclass moves `_position` along when it reads or writes.

    A subclass also inherits from io.RawIOBase or io.BufferedIOBase, and overrides `_size_bytes`.
    """

    _position = 0

    def _size_bytes(self) -> int:
        """Return the size of the file."""
        raise NotImplementedError

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move the position, and return the new one in bytes from the start of the file.

        Args:
            offset: Number of bytes.
            whence: os.SEEK_SET, os.SEEK_CUR or os.SEEK_END: from which place the bytes are counted.

        Raises:
            ValueError: The file is closed, the new position is negative, or `whence` is something else.
        """
        self._check_open()
        bases = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size_bytes()}
        if whence not in bases:
            raise ValueError(f"invalid whence: {whence}")
        position = bases[whence] + offset
        if position < 0:
            raise ValueError(f"negative seek position: {position}")
        self._position = position
        return position

    def tell(self) -> int:
        """Return the position in bytes from the start of the file. Raises ValueError if the file is closed."""
        self._check_open()
        return self._position

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")
