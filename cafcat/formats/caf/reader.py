"""Reads a CAF archive strictly: damage raises an error with the position where it was found.

docs/formats/caf.md lists all refused cases. The index is read twice, in windows of 1 MiB: first to check its JSON
text and its checksum, then to return the entries. If the first pass finds a name that does not ascend, it stops;
one more pass then checks the whole index and finds the repeated names.

Entries in the usual notation are parsed in groups: by the native part if there is one, else by a regular
expression, which is three times as fast as one by one. The native part stops before an invalid entry. If an entry
in a group of the regular expression is invalid, the group is parsed again one by one to find it.
"""

import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, repeat
from operator import le, lt
from typing import Final, NamedTuple

from cafcat.errors import Corrupt, Unsupported, shown_path
from cafcat.formats.base import RandomReader
from cafcat.formats.index_checksum import IndexChecksum, stored_checksum
from cafcat.formats.json_cursor import JsonCursor
from cafcat.formats.reading import read_span, verified_content
from cafcat.formats.repeats import SupersededNames
from cafcat.model import Entry
from cafcat.native.index import ParsedEntries, entry_parser

__all__ = ["CafReader", "entries_of"]

_VERSION: Final = b"1.0"
_FOOTER: Final = struct.Struct("<I")
_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1
_CRC32C_MAX: Final = 0xFFFF_FFFF

_RawEntry = tuple[bytes, bytes, bytes, bytes, bytes]
"""The path as UTF-8, then the digits of start_byte, end_byte, crc32c and modified_ns as text; b"" for a missing
number."""

_INTEGER: Final = re.compile(rb"0|-?[1-9][0-9]*")
_MEMBERS: Final = (b"start_byte", b"end_byte", b"crc32c", b"modified_ns")
_MAX_DIGITS: Final = 19
"""A signed 64-bit number has at most this many decimal digits."""

# An entry and the comma after it, exactly as cafcat and the two original programs write them. All other notations
# that JSON allows, and names longer than MAX_TOKEN_BYTES, are parsed by the cursor: this pattern only adds speed.
_USUAL_ENTRY: Final = re.compile(
    rb'"([^"\\\x00-\x1f]{0,1048576}+)":\{"start_byte":(0|[1-9][0-9]{0,18}+),"end_byte":(0|[1-9][0-9]{0,18}+)'
    rb'(?:,"crc32c":(0|[1-9][0-9]{0,18}+))?(?:,"modified_ns":(0|-?[1-9][0-9]{0,18}+))?\},'
)
_GROUP_ENTRIES: Final = 200
"""Number of entries that are parsed together. With more tuples at once, Python's garbage collector would run so
often that it doubles the time."""

_new_tuple: Final = tuple.__new__
_Column = tuple[bytes, ...]
_Columns = tuple[_Column, ...]
"""The names, start_byte, end_byte, crc32c and modified_ns of entries that were matched together."""


class CafReader:
    """Reads one CAF archive. Implements `Reader`.

    Memory: a window of 1 MiB, tokens of at most 1 MiB, and the memory of SupersededNames (less than 64 MiB).
    """

    def __init__(self, archive: RandomReader) -> None:
        """Read the footer, which has the size of the index.

        Raises:
            Corrupt: the archive has no footer, or the footer gives a larger index than the archive can hold.
        """
        self._archive = archive
        self._index_span = _index_span(archive)

    @property
    def index_span(self) -> tuple[int, int]:
        """The span `[start, end)` of the index in the archive, in bytes."""
        return self._index_span

    def properties(self) -> dict[str, str]:
        """Return {"version": "1.0"}, the version of the format, without reading the archive."""
        return {"version": _VERSION.decode()}

    def entries(self) -> Iterator[Entry]:
        """Return the entries in the order of the index. Of entries with the same name, only the last is returned.

        The call itself reads the whole index, and checks its JSON text, version and checksum. The iterator reads
        the index again, and checks the name and the numbers of each entry when it reaches the entry, even if a
        later entry of the same name replaces it.

        Raises:
            Corrupt: the index is not well-formed, or its checksum differs. Raised by the iterator: the name or a
                number of an entry is invalid, or a name is repeated in an archive that cafcat wrote.
            Unsupported: the index has another version than 1.0, or a string or number of more than 1 MiB.
            StoreFailed: the names do not ascend, there are more than half a million, and the temporary file to find
                repeated ones failed.
        """
        return chain.from_iterable(map(entries_of, self.entry_groups()))

    def entry_groups(self) -> Iterator[Iterable[Entry] | ParsedEntries]:
        """Return the entries as `entries` does, in groups: parsed ones as columns, before objects are made.

        Raises the errors of `entries`. A group has to be used before the next one is taken.
        """
        checksum = stored_checksum(self._archive, *self._index_span)
        try:
            superseded = self._superseded(checksum)
        except Unsupported:
            # If the checksum differs, the unsupported version or number is damage: check() raises Corrupt.
            if checksum is not None:
                checksum.read_all()
                checksum.check()
            raise
        if checksum is not None:
            checksum.check()
        groups = self._parser(self._archive).entries()
        if not superseded:
            return groups
        return iter([self._drop_superseded(chain.from_iterable(map(entries_of, groups)), superseded, checksum)])

    def _superseded(self, checksum: IndexChecksum | None) -> SupersededNames | None:
        """Return the ordinals of the entries whose name comes again later, or None if all names ascend.

        Reads the whole index.
        """
        archive = self._archive if checksum is None else checksum
        if self._ascends(archive):
            return None
        if checksum is not None:
            checksum.restart()
        return SupersededNames(chain.from_iterable(self._parser(archive).names()))

    def _drop_superseded(
        self, entries: Iterable[Entry], superseded: SupersededNames, checksum: IndexChecksum | None
    ) -> Iterator[Entry]:
        for ordinal, entry in enumerate(entries):
            if ordinal not in superseded:
                yield entry
            elif checksum is not None or entry.crc32c is not None:
                # Only cafcat writes checksums, and it never writes a name twice: one of the names is damaged.
                message = "the index is damaged: cafcat wrote this archive, but its index has this name twice"
                raise Corrupt(message, path=shown_path(entry.path), chunk=self._archive.name, byte=entry.start_byte)

    def open(self, entry: Entry) -> Iterator[bytes]:
        """Return the content of an entry in blocks of at most 1 MiB. An entry without a CRC-32C is not checked.

        Raises:
            Corrupt: the content does not match the CRC-32C in the index. Raised after the last block.
        """
        return verified_content(read_span(self._archive, entry), entry, self._archive, "index")

    def _ascends(self, archive: RandomReader) -> bool:
        """Return True if all entry names are in ascending order, so that no name is repeated.

        Most archives of cafcat have this order. Reads the index up to the first name that is out of order.
        """
        last = b""
        for names in self._parser(archive).runs():
            if not (last < names.first and names.ascend):
                return False
            last = names.last
        return True

    def _parser(self, archive: RandomReader) -> "_IndexParser":
        return _IndexParser(archive, *self._index_span)


def _index_span(archive: RandomReader) -> tuple[int, int]:
    size = archive.size_bytes
    index_end = size - _FOOTER.size
    if index_end < 0:
        message = f"not a complete CAF archive: {size} bytes cannot hold the footer of {_FOOTER.size} bytes"
        raise Corrupt(message, chunk=archive.name, byte=0)
    (index_bytes,) = _FOOTER.unpack(archive.read_at(index_end, size))
    if index_bytes > index_end:
        message = (
            f"not a complete CAF archive: by its footer the index has {index_bytes:,} bytes, "
            f"but there are only {index_end:,} bytes before the footer"
        )
        raise Corrupt(message, chunk=archive.name, byte=index_end)
    return index_end - index_bytes, index_end


class _UsualGroup(NamedTuple):
    """Adjacent entries of the index in the usual notation.

    Attributes:
        columns: the names and the numbers of the entries, as bytes.
        end: index in `cursor.text` at which the entries end.
    """

    columns: _Columns
    end: int


class _NameRun(NamedTuple):
    """The names of a group of adjacent entries.

    Attributes:
        first: the first name.
        last: the last name.
        ascend: True if each name is larger than the one before it.
    """

    first: bytes
    last: bytes
    ascend: bool


class _IndexParser:
    """Parses the JSON index of a CAF once, from its start to its end. Methods raise Corrupt and Unsupported."""

    def __init__(self, archive: RandomReader, index_start: int, index_end: int) -> None:
        self._native = entry_parser()
        self._data_bytes = index_start
        self._cursor = JsonCursor(archive, index_start, index_end)
        self._entry_byte: int | None = None

    def names(self) -> Iterator[Sequence[bytes]]:
        """Yield the names of all entries as bytes, in the order of the index, in groups that are not empty.

        Repeated names are included. Neither the ranges of the numbers are checked, nor that a name in the usual
        notation is UTF-8.
        """
        for group in self._groups():
            if isinstance(group, ParsedEntries):
                yield group.names.split(b"\n")[:-1]
            else:
                yield group.columns[0] if isinstance(group, _UsualGroup) else (group[0],)

    def runs(self) -> Iterator[_NameRun]:
        """Yield the first and last name of each group of `names`, and whether its names ascend."""
        for group in self._groups():
            if isinstance(group, ParsedEntries):
                first, _, _ = group.names.partition(b"\n")
                last = group.names[group.names.rfind(b"\n", 0, -1) + 1 : -1]
                yield _NameRun(first, last, group.ascends)
            elif isinstance(group, _UsualGroup):
                column = group.columns[0]
                yield _NameRun(column[0], column[-1], all(map(lt, column, islice(column, 1, None))))
            else:
                yield _NameRun(group[0], group[0], ascend=True)

    def entries(self) -> Iterator[Iterable[Entry] | ParsedEntries]:
        """Yield all entries in the order of the index, in groups, also those whose name comes again later."""
        for group in self._groups():
            if isinstance(group, ParsedEntries):
                yield group
            else:
                yield self._usual_entries(group) if isinstance(group, _UsualGroup) else (self._validated(group),)

    def _groups(self) -> Iterator["ParsedEntries | _UsualGroup | _RawEntry"]:
        """Parse the whole index. Yield entries in the usual notation in groups, and other entries one by one.

        An entry that is cut by the end of the window, and the last entry of the index, are yielded one by one, too.
        A group begins at the cursor, which moves to the end of the group when the next group is requested.
        """
        cursor = self._cursor
        seen: set[bytes] = set()
        for key in cursor.members("a JSON object"):
            if key == b"format_version":
                self._check_version()
            elif key == b"files" and key in seen:
                raise cursor.corrupt('the index has two members "files"')
            elif key == b"files":
                for _ in cursor.items('an object as the value of "files"', b"{}"):
                    while (found := self._columns() or self._usual_group()) is not None:
                        yield found
                        cursor.position = found.end
                    yield self._entry()
            else:
                cursor.skip()
                continue
            seen.add(key)
        if cursor.peek():
            raise cursor.corrupt("the index has more text after the end of its JSON object")
        for key in (b"format_version", b"files"):
            if key not in seen:
                raise cursor.corrupt(f'the index has no member "{key.decode()}"')

    def _columns(self) -> ParsedEntries | None:
        """Let the native part parse a group of entries in the window. None without it, or if it parses no entry."""
        if self._native is None:
            return None
        return self._native.entries(self._cursor.text, self._cursor.position, self._data_bytes)

    def _usual_group(self) -> "_UsualGroup | None":
        """Match entries in the usual notation, from the cursor on, up to _GROUP_ENTRIES and only within the window.

        Returns:
            The entries. None if the next entry does not match: it is the last one of the index, is cut by the end
            of the window, or has another notation.
        """
        # A scanner is an undocumented part of `re`: each match begins where the previous match ended. findall()
        # would skip text that does not match, and finditer() would search for a match up to the end of the window.
        scanner = _USUAL_ENTRY.scanner(self._cursor.text, self._cursor.position)  # type: ignore[attr-defined]
        found: list[re.Match[bytes]] = list(islice(iter(scanner.match, None), _GROUP_ENTRIES))
        if not found:
            return None
        return _UsualGroup(tuple(zip(*[match.groups(b"") for match in found], strict=True)), found[-1].end())

    def _usual_entries(self, group: "_UsualGroup") -> Iterable[Entry]:
        try:
            return self._validated_group(*group.columns)
        except ValueError:
            return self._one_by_one(group.end)

    def _validated_group(self, names: _Column, *numbers: _Column) -> Iterable[Entry]:
        """Convert the columns of a group to entries.

        Raises:
            ValueError: at least one entry is invalid. UnicodeDecodeError is a ValueError, too.
        """
        paths = b"\n".join(names).decode().split("\n")  # the pattern allows no line break in a name
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
        return list(_entries_of(paths, starts, ends, checksums, times))

    def _one_by_one(self, end: int) -> Iterator[Entry]:
        """Yield the entries from the cursor to the index `end` in `cursor.text`, parsed one by one.

        Raises Corrupt when it reaches an invalid entry.
        """
        cursor = self._cursor
        self._entry_byte = None  # errors then use the position of the cursor
        while cursor.position < end and (found := _USUAL_ENTRY.match(cursor.text, cursor.position)) is not None:
            yield self._validated(found.groups(b""))  # type: ignore[arg-type]  # the type of groups() has no length
            cursor.position = found.end()

    def _check_version(self) -> None:
        version = self._cursor.string('a string as "format_version"')
        if version != _VERSION:
            shown = version.decode()[:40]
            message = f"CAF version {shown!r} is not supported: cafcat reads version {_VERSION.decode()!r}"
            raise self._cursor.unsupported(message)

    def _entry(self) -> _RawEntry:
        """Move the cursor past one entry in any valid notation, and return its raw values."""
        cursor = self._cursor
        self._entry_byte = cursor.byte
        path = cursor.string("a path")
        cursor.path = path.decode()
        cursor.expect(b":")
        found: dict[bytes, bytes] = {}
        for key in cursor.members("an object as an entry"):
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
        raw = cursor.scalar(f'an integer as "{name}"')
        if not _INTEGER.fullmatch(raw):
            raise cursor.corrupt(f"{name} is not an integer: {raw.decode()[:40]}")
        if len(raw.lstrip(b"-")) > _MAX_DIGITS:
            raise cursor.corrupt(f"{name} is not a 64-bit number: {raw.decode()[:40]}…")
        return raw

    def _validated(self, raw: _RawEntry) -> Entry:
        """Convert one raw entry. Raises Corrupt if its name is not UTF-8, or its numbers are out of range."""
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
            raise self._invalid_entry(Entry(name, start, end, crc32c, modified_ns))
        return Entry(name, start, end, crc32c, modified_ns)

    def _invalid_entry(self, entry: Entry) -> Corrupt:
        _, start, end, crc32c, modified_ns, _, _ = entry
        if start < 0 or end < 0:
            message = f"the range [{start}, {end}) of an entry is negative"
        elif end < start:
            message = f"the range [{start}, {end}) of an entry ends before it starts"
        elif end > self._data_bytes:
            message = (
                f"the range [{start}, {end}) of an entry exceeds the data, which ends at byte {self._data_bytes}"
            )
        elif crc32c is not None and not 0 <= crc32c <= _CRC32C_MAX:
            message = f"crc32c is not a 32-bit number: {crc32c}"
        else:
            message = f"modified_ns is not a 64-bit number: {modified_ns}"
        self._cursor.path = entry.path
        return self._cursor.corrupt(message, byte=self._entry_byte)


def entries_of(group: Iterable[Entry] | ParsedEntries) -> Iterable[Entry]:
    """Return the entries of a group."""
    if isinstance(group, ParsedEntries):
        return _entries_of(group.names.decode().split("\n")[:-1], *group.numbers())
    return group


def _entries_of(
    paths: Sequence[str],
    starts: Sequence[int],
    ends: Sequence[int],
    checksums: Sequence[int | None],
    times: Sequence[int | None],
) -> Iterable[Entry]:
    """Return the entries with these columns, which are valid.

    This builds the same tuples as Entry(...), without the cost of a Python call for each.
    """
    # Not strict: the last two columns have no end.
    columns = zip(paths, starts, ends, checksums, times, repeat(None), repeat(None), strict=False)
    return map(_new_tuple, repeat(Entry), columns)


def _optional(digits: _Column) -> Sequence[int | None]:
    """Convert a column of decimal digits to numbers; b"" becomes None."""
    if all(digits):
        return list(map(int, digits))
    return [int(number) if number else None for number in digits]
