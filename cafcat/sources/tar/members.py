"""The members of a tar archive, one after the other. Memory does not depend on the size of the archive.

The format: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Extended Header"; GNU tar manual, "Basic Tar
Format" and "Storing Sparse Files". tarfile only decodes each header block. Its class TarFile is not used: it takes
damage for the end of the archive, keeps every member, and reads extended headers of any size at once.
"""

from collections.abc import Iterator, Sequence
from enum import Enum, auto
from tarfile import TarInfo
from typing import Final, NamedTuple, Protocol

from cafcat.sources.tar.headers import (
    BLOCK_BYTES,
    as_text,
    bad_map,
    cut,
    damaged,
    decimal_number,
    decoded,
    is_header,
    modified_ns,
    octal_number,
    own_name,
    pax_records,
    up_to_nul,
    whole_blocks,
)

__all__ = ["Input", "Member", "MemberKind", "Members", "content_parts"]

_CONTENT_BYTES: Final = 1 << 20
"""Largest block of contents in bytes."""
_MAX_EXTENSION_BYTES: Final = 1 << 20
"""Largest extended header or long name in bytes: far more than any file needs. They are read at once."""
_MAX_EXTENTS: Final = 1 << 18
"""Most pieces of one sparse file: 32 MiB of memory."""

_LONG_NAMES: Final = (b"L", b"K")
_EXTENDED: Final = (b"x", b"X")  # X is Solaris' name for x
_GLOBAL: Final = b"g"
_SPARSE: Final = b"S"
_WITHOUT_CONTENTS: Final = (b"1", b"2", b"3", b"4", b"5", b"6")

_KEYS: Final = (b"path", b"linkpath", b"size", b"mtime")
_SPARSE_KEYS: Final = tuple(
    b"GNU.sparse." + key for key in (b"major", b"minor", b"name", b"realsize", b"size", b"map")
)
_ZEROS: Final = bytes(_CONTENT_BYTES)


class Input(Protocol):
    """The bytes of a tar archive, read forward from a position. Errors are raised as SourceFailed."""

    position_byte: int

    def read(self, size_bytes: int) -> bytes:
        """Return the next bytes; fewer only at the end of the archive."""

    def skip_to(self, byte: int) -> None:
        """Move forward to an offset of the archive. Raises SourceFailed if the archive is found to end before."""

    def check_holds(self, end_byte: int, what: str) -> None:
        """Raise SourceFailed if it is known already that the archive ends before an offset.

        Args:
            end_byte: The offset, in bytes from the start of the archive.
            what: The part of the archive that would be incomplete, for the message.
        """


class MemberKind(Enum):
    """How an ingest treats a member of a tar archive."""

    FILE = auto()
    LINK = auto()
    """A hard link: another name of an earlier member."""
    SYMLINK = auto()
    SPECIAL = auto()
    PART = auto()
    """The rest of a file that begins in another volume."""
    NOTHING = auto()
    """A folder, or the label of a volume: there is nothing to ingest."""


_KINDS: Final = {
    b"1": MemberKind.LINK,
    b"2": MemberKind.SYMLINK,
    b"3": MemberKind.SPECIAL,
    b"4": MemberKind.SPECIAL,
    b"5": MemberKind.NOTHING,
    b"6": MemberKind.SPECIAL,
    b"D": MemberKind.NOTHING,  # a folder of an incremental archive; its contents are a list of names
    b"M": MemberKind.PART,
    b"V": MemberKind.NOTHING,
}
"""Kinds by type flag. All other types are files: POSIX requires that for unknown types."""


class Member(NamedTuple):
    """One member of an archive. Offsets are in bytes from the start of the archive.

    Attributes:
        kind: How an ingest treats the member.
        name: Name in the archive. Undecodable bytes are stored with surrogateescape.
        link_name: Name of the target of a link.
        size_bytes: Size of the contents, as they are ingested.
        modified_ns: Time of the last modification, in nanoseconds since 1970 UTC.
        offset_byte: Offset of its first header.
        start_byte: Offset of its stored bytes.
        stored_bytes: Number of stored bytes, which is smaller than size_bytes for a sparse file.
        extents: (offset, size) of the pieces of a sparse file; None for any other member.
    """

    kind: MemberKind
    name: str
    link_name: str
    size_bytes: int
    modified_ns: int
    offset_byte: int
    start_byte: int
    stored_bytes: int
    extents: Sequence[tuple[int, int]] | None

    @property
    def next_byte(self) -> int:
        """Offset of the next member's header in the archive, in bytes."""
        return self.start_byte + whole_blocks(self.stored_bytes)


class _Extension:
    """Names and pax records of a member, from the extended headers before the member's own header."""

    __slots__ = ("lengths", "link_name", "name", "offsets", "records")

    def __init__(self) -> None:
        self.name = self.link_name = ""
        self.records: dict[bytes, bytes] = {}
        self.offsets: list[int] = []
        self.lengths: list[int] = []

    @property
    def is_sparse(self) -> bool:
        return any(key in self.records for key in _SPARSE_KEYS)

    def note_records(self, data: bytes, at: int) -> None:
        """Store the records of a pax extended header that describe name, link target, size, time and pieces.

        Raises SourceFailed if a record is malformed, or an offset or size of a piece is not a number. Other values
        are not checked here.
        """
        self.offsets, self.lengths = [], []
        for key, value in pax_records(data, at):
            self._note(key, value, at)

    def _note(self, key: bytes, value: bytes, at: int) -> None:
        if key == b"GNU.sparse.offset":
            self.offsets.append(decimal_number(value, at))
        elif key == b"GNU.sparse.numbytes":
            self.lengths.append(decimal_number(value, at))
        elif key in _KEYS or key in _SPARSE_KEYS:
            self.records[key] = value

    def extents(self, at: int) -> list[tuple[int, int]]:
        """Return (offset, size) of each stored piece of a sparse file, from its pax records.

        Raises:
            SourceFailed: There are more offsets than sizes, or fewer, or a value is not a number.
        """
        offsets, lengths = self.offsets, self.lengths
        if b"GNU.sparse.map" in self.records:
            flat = [decimal_number(digits, at) for digits in self.records[b"GNU.sparse.map"].split(b",") if digits]
            offsets, lengths = flat[::2], flat[1::2]
        if len(offsets) != len(lengths):
            raise bad_map(at)
        return list(zip(offsets, lengths, strict=True))


class Members:
    """Reads the members of an archive, from the position of the input on.

    Attributes:
        defaults: The global pax records so far, by keyword. They hold for all members that follow.
    """

    def __init__(self, archive: Input, defaults: dict[bytes, bytes] | None = None) -> None:
        self.defaults = dict(defaults or {})
        self._archive = archive

    def __iter__(self) -> Iterator[Member]:
        """Yield all members. The caller may read the contents of a member before it requests the next one.

        Raises:
            SourceFailed: The archive is damaged or cut, has no end marker, or has members after it. The members
                that were yielded before are valid.
        """
        while (member := self.next()) is not None:
            yield member
            self._archive.skip_to(member.next_byte)

    def next(self) -> Member | None:
        """Return the member that begins at the input's position, and move the input to its contents.

        Returns:
            None at the end of the archive.

        Raises:
            SourceFailed: The archive is damaged or cut, has no end marker, or has members after it.
        """
        offset = self._archive.position_byte
        extension: _Extension | None = None
        while True:
            at = self._archive.position_byte
            block = self._archive.read(BLOCK_BYTES)
            if block.count(0) == BLOCK_BYTES and extension is None:
                self._check_rest()
                return None
            header = self._decoded(block, at, last=extension is None)
            if header.type == _GLOBAL:
                self._note_global(header, at)
                continue
            extension = extension or _Extension()
            if header.type in _LONG_NAMES:
                self._note_long_name(header, at, extension)
            elif header.type in _EXTENDED:
                extension.note_records(self._body(header, at), at)
            else:
                return self._member(offset, block, header, extension)

    def _decoded(self, block: bytes, at: int, *, last: bool) -> TarInfo:
        if not block and last:
            raise damaged(
                f"the archive ends at byte {at:,} without an end marker: it may be cut"
                if at
                else "the file is empty"
            )
        if len(block) < BLOCK_BYTES:
            raise cut(at + len(block), at + BLOCK_BYTES, "a header")
        return decoded(block, at)

    def _check_rest(self) -> None:
        """Read the rest of the archive after a block of zeros, its end marker.

        Raises SourceFailed if more members follow.

        POSIX allows any data after the end marker. But members there, as in concatenated archives, must be
        reported. Reading to the end also checks compressed data, and lets the writer of a pipe finish.
        """
        is_searching = True
        while block := self._archive.read(_CONTENT_BYTES):
            zeros = len(block) - len(block.lstrip(b"\0"))
            if is_searching and zeros < len(block):
                is_searching = False
                begin = zeros - zeros % BLOCK_BYTES
                if is_header(block[begin : begin + BLOCK_BYTES]):
                    at = self._archive.position_byte - len(block) + begin
                    raise damaged(
                        f"more members follow the end marker, from byte {at:,} on, and are not read: "
                        "ingest concatenated archives one by one"
                    )

    def _body(self, header: TarInfo, at: int) -> bytes:
        if header.size > _MAX_EXTENSION_BYTES:
            raise damaged(
                f"the extended header at byte {at:,} has {header.size:,} bytes, more than "
                f"{_MAX_EXTENSION_BYTES:,}: the rest of the archive is not read"
            )
        return self._exactly(whole_blocks(header.size))[: header.size]

    def _exactly(self, size_bytes: int) -> bytes:
        end = self._archive.position_byte + size_bytes
        data = self._archive.read(size_bytes)
        if len(data) < size_bytes:
            raise cut(self._archive.position_byte, end, "a header")
        return data

    def _note_long_name(self, header: TarInfo, at: int, extension: _Extension) -> None:
        name = up_to_nul(self._body(header, at))
        if header.type == b"L":
            extension.name = name
        else:
            extension.link_name = name

    def _note_global(self, header: TarInfo, at: int) -> None:
        self.defaults |= {key: value for key, value in pax_records(self._body(header, at), at) if key in _KEYS}

    def _member(self, offset: int, block: bytes, header: TarInfo, extension: _Extension) -> Member:
        records = self.defaults | extension.records if self.defaults else extension.records
        long_name = as_text(records.get(b"GNU.sparse.name") or records.get(b"path") or b"") or extension.name
        # Type and name are read from the block: TarInfo changes them if it takes the member for a folder.
        name = long_name or own_name(block)
        stored = decimal_number(records[b"size"], offset) if records.get(b"size") else header.size
        kind = _KINDS.get(block[156:157], MemberKind.FILE)
        if block[156:157] in _WITHOUT_CONTENTS:
            stored = 0
        elif kind is MemberKind.FILE and name.endswith("/") and not stored:
            kind = MemberKind.NOTHING  # archives without a type for folders store folders this way
        member = Member(
            kind,
            name,
            as_text(records.get(b"linkpath") or b"") or extension.link_name or header.linkname,
            stored,
            modified_ns(records.get(b"mtime"), int(header.mtime)),
            offset,
            self._archive.position_byte,
            stored,
            None,
        )
        if block[156:157] == _SPARSE:
            member = self._with_old_map(member, block)
        elif extension.is_sparse and kind is MemberKind.FILE:
            member = self._with_pax_map(member, extension)
        self._archive.check_holds(member.start_byte + member.stored_bytes, "the contents of a member")
        return member

    def _with_old_map(self, member: Member, block: bytes) -> Member:
        """Return a sparse member of the format "oldgnu" with its size and its pieces.

        The pieces are pairs of numbers in the header block, and in blocks after it.
        """
        at = member.offset_byte
        size = octal_number(block[483:495], at)
        extents = _pairs(block[386:482], at)
        more = block[482]
        while more:
            block = self._exactly(BLOCK_BYTES)
            extents += _pairs(block[:504], at)
            _check_count(len(extents), at)
            more = block[504]
        _check_extents(extents, size, member.stored_bytes, at)
        return member._replace(size_bytes=size, start_byte=self._archive.position_byte, extents=extents)

    def _with_pax_map(self, member: Member, extension: _Extension) -> Member:
        """Return a sparse member of the pax formats with its size and its pieces.

        The list of pieces is one pax record for each number (format 0.0), a single record (0.1), or stored before
        the contents (1.0).
        """
        at, records = member.offset_byte, extension.records
        version = records.get(b"GNU.sparse.major"), records.get(b"GNU.sparse.minor")
        if version == (b"1", b"0"):
            extents = self._map_before(member)
        elif version in ((None, None), (b"0", b"0"), (b"0", b"1")):
            extents = extension.extents(at)
        else:
            raise damaged(
                f"the member at byte {at:,} is sparse in an unknown format: the rest of the archive is not read"
            )
        start = self._archive.position_byte
        stored = member.stored_bytes - (start - member.start_byte)
        size = decimal_number(records.get(b"GNU.sparse.realsize") or records.get(b"GNU.sparse.size") or b"", at)
        _check_extents(extents, size, stored, at)
        return member._replace(size_bytes=size, start_byte=start, stored_bytes=stored, extents=extents)

    def _map_before(self, member: Member) -> list[tuple[int, int]]:
        numbers = self._numbers(member)
        count = next(numbers)
        _check_count(count, member.offset_byte)
        return [(next(numbers), next(numbers)) for _ in range(count)]

    def _numbers(self, member: Member) -> Iterator[int]:
        """Yield the numbers of the list of pieces that is stored before the contents of a sparse member.

        They are decimal, one per line, in whole blocks. Raises SourceFailed if the list is not valid.
        """
        lines = b""
        while True:
            line, newline, rest = lines.partition(b"\n")
            if newline:
                lines = rest
                yield decimal_number(line, member.offset_byte)
            elif self._archive.position_byte >= member.next_byte:
                raise bad_map(member.offset_byte)
            else:
                lines += self._exactly(BLOCK_BYTES)


def content_parts(size_bytes: int, extents: Sequence[tuple[int, int]] | None) -> Iterator[bytes | int]:
    """Yield the contents of a member in parts of at most 1 MiB.

    A part is bytes that are zeros, or an integer: the number of stored bytes that the caller must read next.

    Args:
        size_bytes: Size of the contents in bytes.
        extents: (offset, size) of the stored pieces; zeros are between them. None: all bytes are stored.
    """
    position = 0
    for offset, length in ((0, size_bytes),) if extents is None else extents:
        yield from _zeros(offset - position)
        position = offset
        while position < offset + length:
            part_bytes = min(offset + length - position, _CONTENT_BYTES)
            position += part_bytes
            yield part_bytes
    yield from _zeros(size_bytes - position)


def _zeros(size_bytes: int) -> Iterator[bytes]:
    while size_bytes > 0:
        yield _ZEROS[:size_bytes]
        size_bytes -= _CONTENT_BYTES


def _check_count(count: int, at: int) -> None:
    if count > _MAX_EXTENTS:
        raise damaged(
            f"the sparse member at byte {at:,} has more than {_MAX_EXTENTS:,} pieces: "
            "the rest of the archive is not read"
        )


def _check_extents(extents: Sequence[tuple[int, int]], size_bytes: int, stored_bytes: int, at: int) -> None:
    position = total = 0
    for offset, length in extents:
        if offset < position or offset + length > size_bytes:
            raise bad_map(at)
        position = offset + length
        total += length
    if total != stored_bytes:
        raise bad_map(at)


def _pairs(field: bytes, at: int) -> list[tuple[int, int]]:
    pairs = []
    for begin in range(0, len(field), 24):
        if not field[begin + 12]:
            break
        pairs.append(
            (octal_number(field[begin : begin + 12], at), octal_number(field[begin + 12 : begin + 24], at))
        )
    return pairs
