"""A strict JSON parser (RFC 8259) for indexes that may be larger than memory. It reads the text in windows.

The cursor returns one token at a time. It refuses all text that the standard forbids. It also refuses bytes that
are not UTF-8, unpaired surrogates, a byte order mark, single tokens above 1 MiB and, in values that are skipped,
nesting deeper than 64 levels.
"""

import json
import re
from collections.abc import Iterator
from typing import Final

from cafcat.errors import Corrupt, Unsupported, shown_path
from cafcat.formats.base import RandomReader

__all__ = ["MAX_NESTING", "MAX_TOKEN_BYTES", "WINDOW_BYTES", "JsonCursor"]

WINDOW_BYTES: Final = 1 << 20
"""Number of bytes that are read at once."""
MAX_TOKEN_BYTES: Final = 1 << 20
"""Largest string or number in bytes. Longer ones are refused."""
MAX_NESTING: Final = 64
"""Largest depth of nested objects and lists in a value that is skipped."""

_SPACE: Final = re.compile(rb"[ \t\r\n]*")
# Only single characters have possessive quantifiers: on groups they match wrongly in Python 3.11.2.
# Other quantifiers use 60 bytes of memory per repetition for backtracking. Therefore one match covers at most 4096
# escapes, and _token_end matches longer strings in parts.
_STRING: Final = re.compile(rb'[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4})[^"\\\x00-\x1f]*+){0,4096}')
_SCALAR: Final = re.compile(rb"(?:-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null)?")
_CUT_BYTES: Final = 6
"""If the end of the window cuts a token, the match ends at most this many bytes before the cut. The longest escape,
such as \\u0041, has 6 bytes."""
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class JsonCursor:
    """A position in the JSON text of an archive's index, from which methods read one token after the other.

    Methods that read raise Corrupt for text that is not valid, and Unsupported for a token of more than 1 MiB.

    Attributes:
        text: the current window of the JSON text.
        position: index of the next byte in `text`. Callers with a faster parser may advance it themselves.
        path: the file that errors name; None if they name no file.
    """

    def __init__(self, archive: RandomReader, start_byte: int, end_byte: int) -> None:
        """Move to the first token of the JSON text.

        Args:
            archive: the archive that contains the text.
            start_byte: start of the JSON text in the archive, in bytes.
            end_byte: end of the JSON text in the archive, in bytes, exclusive.

        Raises:
            Corrupt: the text begins with a byte order mark.
        """
        self.text = b""
        self.position = 0
        self.path: str | None = None
        self._archive = archive
        self._window_byte = start_byte
        self._next_byte = start_byte
        self._end_byte = end_byte
        if self.peek() == _BYTE_ORDER_MARK[:1] and self.text.startswith(_BYTE_ORDER_MARK):
            raise self.corrupt("the index begins with a byte order mark")

    def _read_window(self) -> bool:
        """Drop the text before the cursor, and read and append the next 1 MiB. Return False if no text is left."""
        begin = self._next_byte
        if begin == self._end_byte:
            return False
        self._next_byte = min(begin + WINDOW_BYTES, self._end_byte)
        self.text = self.text[self.position :] + self._archive.read_at(begin, self._next_byte)
        self._window_byte += self.position
        self.position = 0
        return True

    def corrupt(self, message: str, byte: int | None = None) -> Corrupt:
        """Return (not raise) a Corrupt that names the archive, the file in `path` (if any), and a byte offset.

        Args:
            message: the message.
            byte: the byte offset in the archive; None for the offset of the cursor.
        """
        where = self.byte if byte is None else byte
        return Corrupt(message, path=self._shown_path(), chunk=self._archive.name, byte=where)

    def unsupported(self, message: str) -> Unsupported:
        """Return (not raise) an Unsupported that names the archive, the file `path` (if any), and the byte offset.

        The offset is that of the cursor.
        """
        return Unsupported(message, path=self._shown_path(), chunk=self._archive.name, byte=self.byte)

    @property
    def byte(self) -> int:
        """Byte offset of the cursor in the archive."""
        return self._window_byte + self.position

    def _shown_path(self) -> str | None:
        return None if self.path is None else shown_path(self.path)

    def peek(self) -> bytes:
        """Move the cursor past white space. Return the byte at the cursor, or b"" at the end of the JSON text."""
        while True:
            found = _SPACE.match(self.text, self.position)
            assert found is not None  # noqa: S101 - the pattern matches the empty string
            self.position = found.end()
            if self.position < len(self.text) or not self._read_window():
                return self.text[self.position : self.position + 1]

    def expect(self, expected: bytes) -> None:
        """Move past white space and the character `expected`. Raises Corrupt if it is not the next character."""
        found = self.peek()
        if found != expected:
            raise self._unexpected(repr(expected.decode()), found)
        self.position += 1

    def _unexpected(self, expected: str, found: bytes, byte: int | None = None) -> Corrupt:
        actual = f"found {found.decode('latin-1')!a}" if found else "the index ends"
        return self.corrupt(f"the index is malformed: expected {expected}, but {actual}", byte)

    def _token_end(self, pattern: re.Pattern[bytes]) -> int:
        """Return the index in `text` after the longest match of the pattern that starts at the cursor.

        Reads more windows as long as the end of the window may have cut the token.
        """
        while True:
            end = self._match_end(pattern, self.position)
            while pattern is _STRING and (further := self._match_end(pattern, end)) > end:
                end = further
            if end - self.position > MAX_TOKEN_BYTES:
                raise self.unsupported(f"the index has a string or number of more than {MAX_TOKEN_BYTES:,} bytes")
            if len(self.text) - end > _CUT_BYTES or not self._read_window():
                return end

    def _match_end(self, pattern: re.Pattern[bytes], begin: int) -> int:
        found = pattern.match(self.text, begin)
        assert found is not None  # noqa: S101 - both patterns match the empty string
        return found.end()

    def string(self, label: str) -> bytes:
        """Move past a JSON string, and return its value as UTF-8. `label` describes the string in messages."""
        if self.peek() != b'"':
            raise self._unexpected(label, self.peek())
        self.position += 1
        end = self._token_end(_STRING)
        if self.text[end : end + 1] != b'"':
            expected = f"valid characters or the closing quote of {label}"
            raise self._unexpected(expected, self.text[end : end + 1], self._window_byte + end)
        raw = self.text[self.position : end]
        value = self._decode(raw, label)
        self.position = end + 1
        return value

    def _decode(self, raw: bytes, label: str) -> bytes:
        try:
            text = raw.decode()
            return raw if b"\\" not in raw else json.loads(f'"{text}"').encode()
        except UnicodeDecodeError as error:
            raise self.corrupt(f"{label} is not valid UTF-8", self.byte + error.start) from error
        except UnicodeEncodeError as error:
            raise self.corrupt(f"{label} has an unpaired surrogate") from error

    def scalar(self, label: str) -> bytes:
        """Move past a number, true, false or null, and return its text. `label` describes the value in messages."""
        found = self.peek()
        end = self._token_end(_SCALAR)
        if end == self.position:
            raise self._unexpected(label, found)
        raw = self.text[self.position : end]
        self.position = end
        return raw

    def members(self, label: str) -> Iterator[bytes]:
        """Yield the keys of the JSON object at the cursor, as UTF-8, with the cursor before the value of the key.

        The caller must read or skip each value before it requests the next key. `label` describes the object in
        messages.
        """
        for _ in self.items(label, b"{}"):
            key = self.string("the name of a member")
            self.expect(b":")
            yield key

    def items(self, label: str, brackets: bytes) -> Iterator[None]:
        """Yield None for each item of the JSON object or list at the cursor, with the cursor at the item.

        An item of an object is a key, a colon and a value; the cursor is at the key. The caller must read or skip
        the whole item before the caller requests the next one.

        Args:
            label: describes the object or list in messages.
            brackets: the opening and the closing bracket: b"{}" or b"[]".
        """
        opening, closing = brackets[:1], brackets[1:]
        if self.peek() != opening:
            raise self._unexpected(label, self.peek())
        self.position += 1
        if self.peek() == closing:
            self.position += 1
            return
        while True:
            yield None
            if self.peek() == closing:
                self.position += 1
                return
            self.expect(b",")

    def skip(self, nesting: int = 1) -> None:
        """Move past one JSON value of any type, which must be well-formed.

        Args:
            nesting: nesting level of the value; 1 for the outermost value that is skipped.
        """
        if nesting > MAX_NESTING:
            raise self.corrupt(f"the index is nested deeper than {MAX_NESTING} levels")
        found = self.peek()
        if found == b'"':
            self.string("a string")
        elif found == b"{":
            for _ in self.members("an object"):
                self.skip(nesting + 1)
        elif found == b"[":
            for _ in self.items("a list", b"[]"):
                self.skip(nesting + 1)
        else:
            self.scalar("a value")
