"""Strict JSON (RFC 8259), read in windows: for indexes that may be larger than memory.

A cursor gives one token at a time. It refuses what the standard refuses, and also bytes that are not UTF-8,
unpaired surrogates, a byte order mark, nesting deeper than 64 and single tokens above 1 MiB.
"""

import json
import re
from collections.abc import Iterator
from typing import Final

from cafcat.errors import Corrupt, Unsupported, shown_path
from cafcat.formats.base import RandomReader

__all__ = ["MAX_NESTING", "MAX_TOKEN_BYTES", "WINDOW_BYTES", "JsonCursor"]

WINDOW_BYTES: Final = 1 << 20
"""How much is read at a time."""
MAX_TOKEN_BYTES: Final = 1 << 20
"""A longer string or number is refused."""
MAX_NESTING: Final = 64
"""Objects and lists inside each other in a value that is passed over."""

_SPACE: Final = re.compile(rb"[ \t\r\n]*")
# Possessive quantifiers only on single characters: on groups they match wrongly in Python 3.11.2.
# Others remember where they may go back to, 60 bytes a turn: so a string of many escapes is matched in parts.
_STRING: Final = re.compile(rb'[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4})[^"\\\x00-\x1f]*+){0,4096}')
_SCALAR: Final = re.compile(rb"(?:-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null)?")
_CUT_BYTES: Final = 6
"""A token that the window cuts ends at most so many bytes before the cut: an escape such as \\u0041 is longest."""
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class JsonCursor:
    """A position in the JSON text `[start_byte, end_byte)` of an archive.

    `text` is the window, `at` the position in it: those who can read the window faster may, and move `at`.
    `path` is the file that errors name. All methods raise Corrupt or Unsupported.
    """

    def __init__(self, archive: RandomReader, start_byte: int, end_byte: int) -> None:
        self.text = b""
        self.at = 0
        self.path: str | None = None
        self._archive = archive
        self._window_byte = start_byte
        self._next_byte = start_byte
        self._end_byte = end_byte
        if self.peek() == _BYTE_ORDER_MARK[:1] and self.text.startswith(_BYTE_ORDER_MARK):
            raise self.corrupt("the index begins with a byte order mark")

    def _more(self) -> bool:
        """Drops what was read and appends the next window; False at the end."""
        begin = self._next_byte
        if begin == self._end_byte:
            return False
        self._next_byte = min(begin + WINDOW_BYTES, self._end_byte)
        self.text = self.text[self.at :] + self._archive.read_at(begin, self._next_byte)
        self._window_byte += self.at
        self.at = 0
        return True

    def corrupt(self, message: str, byte: int | None = None) -> Corrupt:
        """The error, with chunk, path and byte: that of the cursor unless another is given."""
        where = self.byte if byte is None else byte
        return Corrupt(message, path=self._shown_path(), chunk=self._archive.name, byte=where)

    def unsupported(self, message: str) -> Unsupported:
        return Unsupported(message, path=self._shown_path(), chunk=self._archive.name, byte=self.byte)

    @property
    def byte(self) -> int:
        """The position in the archive."""
        return self._window_byte + self.at

    def _shown_path(self) -> str | None:
        return None if self.path is None else shown_path(self.path)

    def peek(self) -> bytes:
        """The next byte that is not white space; b"" at the end."""
        while True:
            found = _SPACE.match(self.text, self.at)
            assert found is not None  # noqa: S101 - it matches nothing, too
            self.at = found.end()
            if self.at < len(self.text) or not self._more():
                return self.text[self.at : self.at + 1]

    def take(self, expected: bytes) -> None:
        """Passes over one character of punctuation."""
        found = self.peek()
        if found != expected:
            raise self._unexpected(expected.decode(), found)
        self.at += 1

    def _unexpected(self, expected: str, found: bytes, byte: int | None = None) -> Corrupt:
        what = f"{found.decode('latin-1')!a} was found" if found else "it ends"
        return self.corrupt(f"the index is not well-formed: where {expected} is expected, {what}", byte)

    def _token_end(self, pattern: re.Pattern[bytes]) -> int:
        """Position after the longest match from here; reads on while the window may have cut it."""
        while True:
            end = self._match_end(pattern, self.at)
            while pattern is _STRING and (further := self._match_end(pattern, end)) > end:
                end = further
            if end - self.at > MAX_TOKEN_BYTES:
                raise self.unsupported(f"the index has a string or number of more than {MAX_TOKEN_BYTES:,} bytes")
            if len(self.text) - end > _CUT_BYTES or not self._more():
                return end

    def _match_end(self, pattern: re.Pattern[bytes], begin: int) -> int:
        found = pattern.match(self.text, begin)
        assert found is not None  # noqa: S101 - both patterns match nothing, too
        return found.end()

    def string(self, what: str) -> bytes:
        """A string as UTF-8. what: the word for it in messages."""
        if self.peek() != b'"':
            raise self._unexpected(what, self.peek())
        self.at += 1
        end = self._token_end(_STRING)
        if self.text[end : end + 1] != b'"':
            raise self._unexpected(f"{what} goes on", self.text[end : end + 1], self._window_byte + end)
        raw = self.text[self.at : end]
        value = self._decode(raw, what)
        self.at = end + 1
        return value

    def _decode(self, raw: bytes, what: str) -> bytes:
        try:
            text = raw.decode()
            return raw if b"\\" not in raw else json.loads(f'"{text}"').encode()
        except UnicodeDecodeError as error:
            raise self.corrupt(f"{what} is not valid UTF-8", self.byte + error.start) from error
        except UnicodeEncodeError as error:
            raise self.corrupt(f"{what} has an unpaired surrogate") from error

    def scalar(self, what: str) -> bytes:
        """A number, true, false or null, as it stands. what: the word for it in messages."""
        found = self.peek()
        end = self._token_end(_SCALAR)
        if end == self.at:
            raise self._unexpected(what, found)
        raw = self.text[self.at : end]
        self.at = end
        return raw

    def members(self, what: str) -> Iterator[bytes]:
        """Keys of the object that begins here, as UTF-8. Take each value before asking for the next key."""
        for _ in self.items(what, b"{}"):
            key = self.string("the name of a member")
            self.take(b":")
            yield key

    def items(self, what: str, brackets: bytes) -> Iterator[None]:
        """Once per item of the object or list that begins here, with the cursor at the item: take it before
        asking for the next. what: the word for all of it in messages; brackets: both of them."""
        opening, closing = brackets[:1], brackets[1:]
        if self.peek() != opening:
            raise self._unexpected(what, self.peek())
        self.at += 1
        if self.peek() == closing:
            self.at += 1
            return
        while True:
            yield None
            if self.peek() == closing:
                self.at += 1
                return
            self.take(b",")

    def skip(self, nesting: int = 1) -> None:
        """Passes over any value; it must be well-formed all the same."""
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
