"""Reading a CAF archive, strictly: what cannot be right is refused with the place where it stands.

What is refused, and how, is listed in docs/formats/caf.md. The index is read in windows of 1 MiB, twice: first to
check it and to find names that come again, then to give the entries. Entries that are written as usual are matched,
converted and checked by the thousand, which is three times as fast as one by one; where one of them makes no sense,
they are gone through one by one to say which.
"""

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, repeat
from operator import le, lt
from typing import Any, Final, TypeVar

from cafcat.errors import Corrupt, Unsupported, shown_path
from cafcat.formats.base import RandomReader
from cafcat.formats.index_checksum import IndexChecksum, stored_checksum
from cafcat.formats.json_cursor import JsonCursor
from cafcat.formats.reading import checked, span_of
from cafcat.formats.repeats import Superseded
from cafcat.model import Entry

__all__ = ["CafReader"]

_VERSION: Final = b"1.0"
_FOOTER: Final = struct.Struct("<I")
_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1
_CRC32C_MAX: Final = 0xFFFF_FFFF

_RawEntry = tuple[bytes, bytes, bytes, bytes, bytes]
"""Path as UTF-8, and the digits of start_byte, end_byte, crc32c, modified_ns as they stand; b"" for none."""

_INTEGER: Final = re.compile(rb"0|-?[1-9][0-9]*")
_MEMBERS: Final = (b"start_byte", b"end_byte", b"crc32c", b"modified_ns")
_MOST_DIGITS: Final = 19

# An entry, and the comma after it, exactly as cafcat and the two original programs write it. Everything else that
# JSON allows is left to the cursor, and names of more than MAX_TOKEN_BYTES, too: only speed depends on this.
_USUAL_ENTRY: Final = re.compile(
    rb'"([^"\\\x00-\x1f]{0,1048576}+)":\{"start_byte":(0|[1-9][0-9]{0,18}+),"end_byte":(0|[1-9][0-9]{0,18}+)'
    rb'(?:,"crc32c":(0|[1-9][0-9]{0,18}+))?(?:,"modified_ns":(0|-?[1-9][0-9]{0,18}+))?\},'
)
_GROUP_ENTRIES: Final = 200
"""So many are taken together. Of more tuples at once Python's garbage collector would take notice, again and again,
which takes as long as all the rest."""

_new_tuple: Final = tuple.__new__
_Column = tuple[bytes, ...]
_Columns = tuple[_Column, ...]
"""Of entries that were matched together: names, start_byte, end_byte, crc32c, modified_ns."""
Item = TypeVar("Item")


class CafReader:
    """Reads one archive. Memory: a window of 1 MiB, tokens of at most 1 MiB, and what Superseded needs."""

    def __init__(self, archive: RandomReader) -> None:
        """Raises Corrupt if the footer cannot be right."""
        self._archive = archive
        self._index_span = _index_span(archive)

    @property
    def index_span(self) -> tuple[int, int]:
        return self._index_span

    def about(self) -> dict[str, str]:
        """The version: there is one."""
        return {"version": _VERSION.decode()}

    def entries(self) -> Iterator[Entry]:
        """Return the entries in the order of the index; of a name that stands twice the last, as JSON readers do.

        The call itself reads the whole index once. An entry that makes no sense raises when its turn comes, even if
        a later entry replaces it.

        Raises:
            Corrupt: the index is not well-formed, or does not have its checksum; a name stands twice in an archive
                that cafcat wrote.
            Unsupported: see docs/formats/caf.md.
            StoreFailed: an index of more than half a million entries finds no room for temporary files.
        """
        checksum = stored_checksum(self._archive, *self._index_span)
        try:
            superseded = self._superseded(checksum)
        except Unsupported:
            # A damaged version or number is damage, not something of a later version.
            if checksum is not None:
                checksum.read_all()
                checksum.check()
            raise
        if checksum is not None:
            checksum.check()
        entries = chain.from_iterable(self._parser(self._archive).entries())
        return self._last_of_each(entries, superseded, checksum) if superseded else entries

    def _superseded(self, checksum: IndexChecksum | None) -> Superseded | None:
        """Return the entries whose name stands again later, None if all names ascend. Reads the whole index."""
        archive = self._archive if checksum is None else checksum
        if self._ascends(archive):
            return None
        if checksum is not None:
            checksum.restart()
        return Superseded(chain.from_iterable(self._parser(archive).names()))

    def _last_of_each(
        self, entries: Iterable[Entry], superseded: Superseded, checksum: IndexChecksum | None
    ) -> Iterator[Entry]:
        for ordinal, entry in enumerate(entries):
            if ordinal not in superseded:
                yield entry
            elif checksum is not None or entry.crc32c is not None:
                # Only cafcat writes checksums, and it never writes a name twice: one of the names is damaged.
                message = "this name stands twice in an archive that cafcat wrote: the index is damaged"
                raise Corrupt(message, path=shown_path(entry.path), chunk=self._archive.name, byte=entry.start_byte)

    def open(self, entry: Entry) -> Iterator[bytes]:
        """Its bytes in blocks of at most 1 MiB. Raises Corrupt if its checksum, where it has one, is another."""
        return checked(span_of(self._archive, entry), entry, self._archive, "index")

    def _ascends(self, archive: RandomReader) -> bool:
        """Return whether each name comes after the one before, as in most archives of cafcat: then none stands
        twice. Reads the index up to the first name that does not."""
        last = b""
        for names in self._parser(archive).names():
            if not (last < names[0] and all(map(lt, names, islice(names, 1, None)))):
                return False
            last = names[-1]
        return True

    def _parser(self, archive: RandomReader) -> "_IndexParser":
        return _IndexParser(archive, *self._index_span)


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

    def names(self) -> Iterator[Sequence[bytes]]:
        """The names of all entries of a well-formed index as UTF-8, in order, those that come twice included; in
        groups that are not empty."""
        return self._groups(lambda columns, _: columns[0], lambda raw: (raw[0],))

    def entries(self) -> Iterator[Iterable[Entry]]:
        """The entries, likewise."""
        return self._groups(self._usual_entries, lambda raw: (self._checked(raw),))

    def _groups(
        self,
        usual: Callable[[_Columns, int], Iterable[Item]],
        unusual: Callable[[_RawEntry], Iterable[Item]],
    ) -> Iterator[Any]:
        """usual: takes entries that are written as usual, from the cursor to a position in the window; unusual:
        one."""
        cursor = self._cursor
        seen: set[bytes] = set()
        for key in cursor.members("the index as a JSON object"):
            if key == b"format_version":
                self._check_version()
            elif key == b"files" and key in seen:
                raise cursor.corrupt('the index has two members "files"')
            elif key == b"files":
                for _ in cursor.items("files as an object", b"{}"):
                    while (found := self._usual_columns()) is not None:
                        yield usual(*found)
                        cursor.at = found[1]
                    yield unusual(self._entry())
            else:
                cursor.skip()
                continue
            seen.add(key)
        if cursor.peek():
            raise cursor.corrupt("the index goes on after its end")
        for key in (b"format_version", b"files"):
            if key not in seen:
                raise cursor.corrupt(f'the index has no member "{key.decode()}"')

    def _usual_columns(self) -> tuple[_Columns, int] | None:
        """Entries from the cursor on that are written as usual, some hundred, as far as the window has them whole;
        and the position where they end. What comes then is one more of them, the last entry of the index, one that
        is cut, or one that is written otherwise."""
        # What re itself makes its tokens with, though it is not documented: each match begins where the one before
        # ended. findall() would pass over what does not match, and finditer() look for it up to the window's end.
        scanner = _USUAL_ENTRY.scanner(self._cursor.text, self._cursor.at)  # type: ignore[attr-defined]
        found: list[re.Match[bytes]] = list(islice(iter(scanner.match, None), _GROUP_ENTRIES))
        if not found:
            return None
        return tuple(zip(*[match.groups(b"") for match in found], strict=True)), found[-1].end()

    def _usual_entries(self, columns: _Columns, end: int) -> Iterable[Entry]:
        try:
            return self._all_checked(*columns)
        except ValueError:
            return self._one_by_one(end)

    def _all_checked(self, names: _Column, *numbers: _Column) -> Iterable[Entry]:
        """Raises ValueError if one of them makes no sense; UnicodeDecodeError is one, too."""
        paths = b"\n".join(names).decode().split("\n")  # no name has a line break as it is
        starts, ends = (list(map(int, digits)) for digits in numbers[:2])
        checksums, times = map(_optional, numbers[2:])
        if (
            max(ends) > self._data_bytes
            or not all(map(le, starts, ends))
            or max(filter(None, checksums), default=0) > _CRC32C_MAX
            or max(filter(None, times), default=0) > _INT64_MAX
            or min(filter(None, times), default=0) < _INT64_MIN
        ):
            raise ValueError
        nothing = repeat(None, len(paths))
        columns = zip(paths, starts, ends, checksums, times, nothing, nothing, strict=True)
        # What Entry(...) does, without the cost of a Python call.
        return list(map(_new_tuple, repeat(Entry), columns))

    def _one_by_one(self, end: int) -> Iterator[Entry]:
        """The same up to the one that makes no sense, which raises in its turn."""
        cursor = self._cursor
        self._entry_byte = None  # that is where the cursor stands
        while cursor.at < end and (found := _USUAL_ENTRY.match(cursor.text, cursor.at)) is not None:
            yield self._checked(found.groups(b""))  # type: ignore[arg-type]  # its type does not tell how many
            cursor.at = found.end()

    def _check_version(self) -> None:
        version = self._cursor.string("format_version as a string")
        if version != _VERSION:
            shown = version.decode()[:40]
            raise self._cursor.unsupported(f"CAF of version {shown!r}: this cafcat reads {_VERSION.decode()!r}")

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
        return path, start, end, crc32c or b"", modified_ns or b""

    def _integer(self, name: str) -> bytes:
        cursor = self._cursor
        raw = cursor.scalar(f"{name} as an integer")
        if not _INTEGER.fullmatch(raw):
            raise cursor.corrupt(f"{name} is no integer: {raw.decode()[:40]}")
        if len(raw.lstrip(b"-")) > _MOST_DIGITS:
            raise cursor.corrupt(f"{name} is not a 64-bit number: {raw.decode()[:40]}…")
        return raw

    def _checked(self, raw: _RawEntry) -> Entry:
        """The entry, if it makes sense."""
        path, start_digits, end_digits, crc32c_digits, modified_digits = raw
        try:
            name = path.decode()
        except UnicodeDecodeError as error:
            raise self._cursor.corrupt(
                "a path is not valid UTF-8", byte=self._cursor.byte + 1 + error.start
            ) from error
        start, end = int(start_digits), int(end_digits)
        crc32c = int(crc32c_digits) if crc32c_digits else None
        modified_ns = int(modified_digits) if modified_digits else None
        if (
            not 0 <= start <= end <= self._data_bytes
            or (crc32c is not None and not 0 <= crc32c <= _CRC32C_MAX)
            or (modified_ns is not None and not _INT64_MIN <= modified_ns <= _INT64_MAX)
        ):
            raise self._senseless(Entry(name, start, end, crc32c, modified_ns))
        return Entry(name, start, end, crc32c, modified_ns)

    def _senseless(self, entry: Entry) -> Corrupt:
        _, start, end, crc32c, modified_ns, _, _ = entry
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


def _optional(digits: _Column) -> Sequence[int | None]:
    """Numbers that need not be there."""
    if all(digits):
        return list(map(int, digits))
    return [int(number) if number else None for number in digits]
