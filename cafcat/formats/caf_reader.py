"""Reading a CAF archive, strictly: what cannot be right is refused with the place where it stands.

What is refused, and how, is listed in docs/formats/caf.md. The index is read in windows of 1 MiB, twice: first to
check it and to find names that come again, then to give the entries.
"""

import re
import struct
from collections.abc import Iterator
from typing import Final

from cafcat.errors import Corrupt
from cafcat.formats.base import RandomReader
from cafcat.formats.json_cursor import JsonCursor
from cafcat.formats.repeats import Superseded
from cafcat.model import Entry

__all__ = ["CafReader"]

_VERSION: Final = b"1.0"
_FOOTER: Final = struct.Struct("<I")
_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1
_CRC32C_MAX: Final = 0xFFFF_FFFF

_RawEntry = tuple[bytes, bytes, bytes, bytes | None, bytes | None]
"""Path as UTF-8, and the digits of start_byte, end_byte, crc32c, modified_ns as they stand."""

_INTEGER: Final = re.compile(rb"0|-?[1-9][0-9]*")
_MEMBERS: Final = (b"start_byte", b"end_byte", b"crc32c", b"modified_ns")
_MOST_DIGITS: Final = 19

# An entry, and the comma after it, exactly as cafcat and the two original programs write it. Everything else that
# JSON allows is left to the cursor, and names of more than MAX_TOKEN_BYTES, too: only speed depends on this.
_USUAL_ENTRY: Final = re.compile(
    rb'"([^"\\\x00-\x1f]{0,1048576}+)":\{"start_byte":(0|[1-9][0-9]{0,18}+),"end_byte":(0|[1-9][0-9]{0,18}+)'
    rb'(?:,"crc32c":(0|[1-9][0-9]{0,18}+))?(?:,"modified_ns":(0|-?[1-9][0-9]{0,18}+))?\},'
)


_new_tuple: Final = tuple.__new__


class CafReader:
    """Reads one archive. Memory: a window of 1 MiB, tokens of at most 1 MiB, and what Superseded needs."""

    def __init__(self, archive: RandomReader) -> None:
        """Raises Corrupt if the footer cannot be right."""
        self._archive = archive
        self._index_span = _index_span(archive)

    @property
    def index_span(self) -> tuple[int, int]:
        return self._index_span

    def entries(self) -> Iterator[Entry]:
        """The entries in the order of the index; of a name that comes twice the last, as JSON readers take it.

        The call itself reads the index once and raises Corrupt or Unsupported if it is not well-formed; an entry
        that makes no sense (also a superseded one) raises when its turn comes. Raises StoreFailed if an index of
        more than half a million entries finds no room for temporary files.
        """
        superseded = Superseded(raw[0] for raw in self._parser().raw_entries())
        parser = self._parser()
        entries = map(parser.checked, parser.raw_entries())
        if not superseded:
            return entries
        return (entry for ordinal, entry in enumerate(entries) if ordinal not in superseded)

    def _parser(self) -> "_IndexParser":
        return _IndexParser(self._archive, *self._index_span)


def _index_span(archive: RandomReader) -> tuple[int, int]:
    size = archive.size_bytes
    index_end = size - _FOOTER.size
    if index_end < 0:
        message = f"not a whole CAF archive: {size} bytes are shorter than the footer of {_FOOTER.size}"
        raise Corrupt(message, chunk=archive.name, byte=0)
    (index_bytes,) = _FOOTER.unpack(archive.read_at(index_end, size))
    if index_bytes > index_end:
        message = (
            f"not a whole CAF archive: its footer says that the index has {index_bytes:,} bytes, "
            f"but only {index_end:,} stand before it"
        )
        raise Corrupt(message, chunk=archive.name, byte=index_end)
    return index_end - index_bytes, index_end


class _IndexParser:
    """One way through the index."""

    def __init__(self, archive: RandomReader, index_start: int, index_end: int) -> None:
        self._data_bytes = index_start
        self._cursor = JsonCursor(archive, index_start, index_end)
        self._entry_byte: int | None = None

    def raw_entries(self) -> Iterator[_RawEntry]:
        """All entries of a well-formed index, in order, names that come twice included."""
        cursor = self._cursor
        seen: set[bytes] = set()
        for key in cursor.members("the index as a JSON object"):
            if key == b"format_version":
                self._check_version()
            elif key == b"files" and key in seen:
                raise cursor.corrupt('the index has two members "files"')
            elif key == b"files":
                yield from self._files()
            else:
                cursor.skip()
                continue
            seen.add(key)
        if cursor.peek():
            raise cursor.corrupt("the index goes on after its end")
        for key in (b"format_version", b"files"):
            if key not in seen:
                raise cursor.corrupt(f'the index has no member "{key.decode()}"')

    def _check_version(self) -> None:
        version = self._cursor.string("format_version as a string")
        if version != _VERSION:
            shown = version.decode()[:40]
            raise self._cursor.unsupported(f"CAF of version {shown!r}: this cafcat reads {_VERSION.decode()!r}")

    def _files(self) -> Iterator[_RawEntry]:
        cursor = self._cursor
        for _ in cursor.items("files as an object", b"{}"):
            yield from self._usual_entries()
            yield self._entry()

    def _usual_entries(self) -> Iterator[_RawEntry]:
        """Entries in the window that look as usual, up to the last one before another kind, or the window's end.
        The cursor is then at an entry: the last of the index, one that is cut, or one that looks different."""
        cursor = self._cursor
        self._entry_byte = None  # of these, that is where the cursor stands
        text, match = cursor.text, _USUAL_ENTRY.match
        while (found := match(text, cursor.at)) is not None:
            yield found.groups()  # type: ignore[misc]  # its type does not tell which groups are optional
            cursor.at = found.end()

    def _entry(self) -> _RawEntry:
        """One entry, however it is written."""
        cursor = self._cursor
        self._entry_byte = cursor.byte
        path = cursor.string("a path")
        cursor.path = path.decode()
        cursor.take(b":")
        found: dict[bytes, bytes] = {}
        for key in cursor.members("an entry as an object"):
            if key in _MEMBERS:
                found[key] = self._integer(key.decode())
            else:
                cursor.skip()
        start, end, crc32c, modified_ns = map(found.get, _MEMBERS)
        if start is None or end is None:
            missing = "start_byte" if start is None else "end_byte"
            raise cursor.corrupt(f"the entry has no {missing}")
        cursor.path = None
        return path, start, end, crc32c, modified_ns

    def _integer(self, name: str) -> bytes:
        cursor = self._cursor
        raw = cursor.scalar(f"{name} as an integer")
        if not _INTEGER.fullmatch(raw):
            raise cursor.corrupt(f"{name} is no integer: {raw.decode()[:40]}")
        if len(raw.lstrip(b"-")) > _MOST_DIGITS:
            raise cursor.corrupt(f"{name} is not a 64-bit number: {raw.decode()[:40]}…")
        return raw

    def checked(self, raw: _RawEntry) -> Entry:
        """The entry, if it makes sense."""
        path, start_digits, end_digits, crc32c_digits, modified_digits = raw
        try:
            name = path.decode()
        except UnicodeDecodeError as error:
            raise self._cursor.corrupt(
                "a path is not valid UTF-8", byte=self._cursor.byte + 1 + error.start
            ) from error
        start, end = int(start_digits), int(end_digits)
        crc32c = None if crc32c_digits is None else int(crc32c_digits)
        modified_ns = None if modified_digits is None else int(modified_digits)
        if (
            not 0 <= start <= end <= self._data_bytes
            or (crc32c is not None and not 0 <= crc32c <= _CRC32C_MAX)
            or (modified_ns is not None and not _INT64_MIN <= modified_ns <= _INT64_MAX)
        ):
            raise self._senseless(Entry(name, start, end, crc32c, modified_ns))
        # What Entry(...) does, without the cost of a Python call: a fifth of all time here.
        return _new_tuple(Entry, (name, start, end, crc32c, modified_ns))

    def _senseless(self, entry: Entry) -> Corrupt:
        _, start, end, crc32c, modified_ns = entry
        if start < 0 or end < 0:
            message = f"the range [{start}, {end}) of an entry is negative"
        elif end < start:
            message = f"the range [{start}, {end}) of an entry ends before it starts"
        elif end > self._data_bytes:
            message = (
                f"the range [{start}, {end}) of an entry goes beyond the data, which end at {self._data_bytes}"
            )
        elif crc32c is not None and not 0 <= crc32c <= _CRC32C_MAX:
            message = f"crc32c is not a 32-bit number: {crc32c}"
        else:
            message = f"modified_ns is not a 64-bit number: {modified_ns}"
        self._cursor.path = entry.path
        return self._cursor.corrupt(message, byte=self._entry_byte)
