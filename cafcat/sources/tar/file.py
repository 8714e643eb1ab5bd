"""A tar archive in a file, not compressed: its members are read in any order.

The locator of a file (`SourceFile.locator`) is the place of the member's contents: "<start>-<end>" in bytes from
the start of the archive. For a sparse member it is "@<byte>", the offset of its first header.
"""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final, Self

from cafcat.errors import CafcatError, NotFound, SourceFailed
from cafcat.model import FileProblem, ProblemKind, SourceFile
from cafcat.progress import Progress
from cafcat.sources.filter import PathFilter
from cafcat.sources.names import printable
from cafcat.sources.tar.headers import cut, damaged
from cafcat.sources.tar.input import FileInput, State, open_archive, read_at
from cafcat.sources.tar.items import Found, Items, damage, key, own_item, shown
from cafcat.sources.tar.members import Member, MemberKind, Members, content_parts

__all__ = ["OpenMember", "TarFileSource"]

_LINK_BYTES: Final = 128 << 20
"""Memory for the targets of hard links, in bytes (estimated): a third of a million names of usual length."""
_LINK_OVERHEAD_BYTES: Final = 300
"""Estimated memory of a link target beside its name, in bytes."""
_REPEATED_BYTES: Final = 128 << 20
"""Memory for repeated names, in bytes (estimated): half a million names of usual length."""
_NAME_OVERHEAD_BYTES: Final = 150
"""Estimated memory of a repeated name beside its text, in bytes."""
_BYTES_PER_SEEN: Final = 128
_MOST_SEEN_BYTES: Final = 16 << 20
"""The bits of seen names take a byte for so many bytes of the archive, so at least 32 bits for each member, and at
most so many bytes in all."""


class TarFileSource:
    """The members of a tar archive in a file, as a source, in the order of the archive.

    If a name occurs several times, only the last file of this name is yielded, which tar would extract last. The
    headers of the archive are read twice for this.

    A hard link becomes a file with the contents and the time of its target, which must come before it in the
    archive. Reading fails if the archive has changed since it was first listed.
    """

    def __init__(
        self,
        typed: str,
        *,
        prefix: str = "",
        filter: PathFilter | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Check that the archive can be opened.

        Args:
            typed: Path of the archive as the user typed it.
            prefix: Folder of the catalog that the names are put into.
            filter: Which members to ingest, by their names in the archive. None: all.
            progress: Receives a warning if the beginning of a member's name is removed.

        Raises:
            NotFound: There is no such file.
            SourceFailed: The file cannot be opened for another reason.
        """
        self._typed = typed
        self._items = Items(prefix, filter, progress or Progress())
        self._state: State | None = None
        self._repeated: _RepeatedNames | None = None
        try:
            os.close(open_archive(typed))
        except SourceFailed as error:
            raise _unusable(self.name, error) from error

    @property
    def name(self) -> str:
        """Path of the archive as the user typed it, with escapes for unprintable characters."""
        return printable(self._typed)

    def files(self) -> Iterator[SourceFile | FileProblem]:
        """Yield the file to ingest for each member of the archive, or the problem if it cannot be ingested.

        Folders, and members that the filter excludes, are left out. If the archive is damaged, has changed, or
        cannot be read, the last item is a problem with the name of the archive.
        """
        try:
            descriptor = open_archive(self._typed)
            try:
                self._state = self._state or State.of(descriptor)
                yield from self._listed(descriptor, self._state)
            finally:
                os.close(descriptor)
        except SourceFailed as error:
            yield damage(self.name, error)

    def root_of(self, file: SourceFile) -> str:  # noqa: ARG002 - all members have the same root
        """Return the root of all members: the path of the archive, with its size and time.

        Archives with one name replace each other, and reproducible builds give all members the same time. So the
        size and time of the archive distinguish the versions. Before `files` is iterated, the root is the path
        alone.
        """
        return self._state.root(self._typed) if self._state else printable(os.path.abspath(self._typed))

    def open(self, file: SourceFile) -> "OpenMember":
        """Open a member of the archive.

        Raises:
            SourceFailed: The archive has changed since it was first listed, is damaged, or cannot be read.
        """
        return OpenMember(self._typed, self._state, file)

    def _listed(self, descriptor: int, state: State) -> Iterator[Found]:
        state.check(descriptor)
        try:
            repeated = self._repeated = self._repeated or _RepeatedNames(descriptor, state.size_bytes)
            for member, found in _members(descriptor, state.size_bytes):
                item = self._items.item(member, found)
                if item is None or (isinstance(item, SourceFile) and repeated.has_later(member)):
                    continue
                yield item
        except SourceFailed:
            state.check(descriptor)  # a changed archive looks damaged: this reports the change
            raise
        state.check(descriptor)


class OpenMember:
    """A member of a tar file that is open for one reading: either read() or blocks(), once."""

    __slots__ = ("_descriptor", "_extents", "_path", "_position", "_state", "etag", "modified_ns", "size_bytes")

    def __init__(self, typed: str, state: State | None, file: SourceFile) -> None:
        """Open the archive and find the member.

        Args:
            typed: Path of the archive.
            state: State of the archive when the member was listed. None: the current state.
            file: The member.

        Raises:
            SourceFailed: The archive has changed or cannot be read.
        """
        self._path = file.path
        self._extents: Sequence[tuple[int, int]] | None = None
        self.modified_ns = file.modified_ns
        self.etag: str | None = None  # members have no entity tags
        try:
            self._descriptor = open_archive(typed)
            try:
                self._state = state or State.of(self._descriptor)
                self._state.check(self._descriptor)
                self._find(file.locator)
            except BaseException:
                os.close(self._descriptor)
                raise
        except SourceFailed as error:
            raise self._failed(error) from error

    def read(self) -> bytes:
        """Return all bytes of the member.

        Raises:
            SourceFailed: The archive has changed, is cut, or cannot be read.
        """
        try:
            data = self._read(self.size_bytes) if self._extents is None else b"".join(self._contents())
            self._state.check(self._descriptor)
        except SourceFailed as error:
            raise self._failed(error) from error
        return data

    def blocks(self) -> Iterator[bytes]:
        """Yield all bytes of the member in blocks of at most 1 MiB.

        Raises:
            SourceFailed: The archive has changed, is cut, or cannot be read.
        """
        try:
            yield from self._contents()
            self._state.check(self._descriptor)
        except SourceFailed as error:
            raise self._failed(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def _find(self, locator: str) -> None:
        start, _, end = locator.partition("-")
        if end:
            self._position, self.size_bytes = int(start), int(end) - int(start)
            return
        archive = FileInput(self._descriptor, self._state.size_bytes, int(locator.removeprefix("@")))
        member = Members(archive).next()
        if member is None:
            raise damaged(f"no member begins at {locator}")
        self._position, self.size_bytes, self._extents = member.start_byte, member.size_bytes, member.extents

    def _contents(self) -> Iterator[bytes]:
        for part in content_parts(self.size_bytes, self._extents):
            yield part if isinstance(part, bytes) else self._read(part)

    def _read(self, size_bytes: int) -> bytes:
        data = read_at(self._descriptor, size_bytes, self._position)
        if len(data) < size_bytes:
            self._state.check(self._descriptor)
            raise cut(self._position + len(data), self._position + size_bytes, "the contents of a member")
        self._position += size_bytes
        return data

    def _failed(self, error: SourceFailed) -> SourceFailed:
        return SourceFailed(error.message, path=printable(self._path), problem=error.problem)


class _RepeatedNames:
    """The names that occur several times in an archive, each with its last member.

    A bit for each hash of a name shows that the name may have occurred before. Only such names are stored.
    """

    def __init__(self, descriptor: int, size_bytes: int) -> None:
        """Read the headers of all members, up to the end of the archive or to damage, which the listing reports.

        Args:
            descriptor: The open archive.
            size_bytes: Size of the archive.
        """
        self._last: dict[str, int] = {}
        seen = bytearray(min(size_bytes // _BYTES_PER_SEEN + 1, _MOST_SEEN_BYTES))
        room_bytes = _REPEATED_BYTES
        with contextlib.suppress(SourceFailed):
            for member in Members(FileInput(descriptor, size_bytes)):
                if member.kind not in (MemberKind.FILE, MemberKind.LINK):
                    continue
                name = key(member.name)
                byte, bit = divmod(hash(name) % (8 * len(seen)), 8)
                if not seen[byte] >> bit & 1:
                    seen[byte] |= 1 << bit
                    continue
                if name not in self._last:
                    room_bytes -= sys.getsizeof(name) + _NAME_OVERHEAD_BYTES
                    if room_bytes < 0:
                        continue  # all members of this name are listed
                self._last[name] = member.offset_byte

    def has_later(self, member: Member) -> bool:
        """Return True if a later member of the archive is a file or hard link of the same name."""
        return self._last.get(key(member.name), 0) > member.offset_byte


class _LinkTargets:
    """The members of an archive to which later hard links refer, by name.

    Only names that are targets are stored. They are searched when the first link is found, so that an archive
    without links is read once.
    """

    def __init__(self) -> None:
        self._found: dict[str, Found | None] = {}
        self._room_bytes = _LINK_BYTES

    def look(self, descriptor: int, size_bytes: int, first: Member, defaults: dict[bytes, bytes]) -> None:
        """Store the members before the first hard link that are the target of any hard link of the archive.

        The names of the targets are read from the headers of the first link and of all members behind it.

        Args:
            descriptor: The open archive.
            size_bytes: Size of the archive.
            first: The first hard link.
            defaults: The global pax records before the first link, by keyword.
        """
        with contextlib.suppress(SourceFailed):  # the listing reports this damage later
            for member in Members(FileInput(descriptor, size_bytes, first.offset_byte), defaults):
                if member.kind is MemberKind.LINK:
                    self._want(key(member.link_name))
        for member in Members(FileInput(descriptor, size_bytes)):
            if member.offset_byte == first.offset_byte:
                return
            self.note(member, own_item(member, _locator(member)))

    def note(self, member: Member, found: Found) -> None:
        """Store the file or problem for a member, if its name is that of the target of a hard link."""
        name = key(member.name)
        if name in self._found and member.kind is not MemberKind.NOTHING:
            self._found[name] = found

    def find(self, link: Member) -> Found:
        """Return the file to ingest for the target of a hard link, or the problem if the target cannot be ingested.

        The result is a problem, too, if the target does not come before the link in the archive, or if the archive
        has too many hard links to store all targets.
        """
        name = key(link.link_name)
        found = self._found.get(name)
        if found is not None:
            return found
        if name not in self._found:
            message = "the archive has too many hard links: extract it and ingest the files"
        else:
            message = f"a hard link to {shown(link.link_name)!r}, which is not before it in the archive"
        return FileProblem("", ProblemKind.UNREADABLE, message)

    def _want(self, name: str) -> None:
        if name not in self._found:
            self._room_bytes -= sys.getsizeof(name) + _LINK_OVERHEAD_BYTES
            if self._room_bytes >= 0:
                self._found[name] = None


def _members(descriptor: int, size_bytes: int) -> Iterator[tuple[Member, Found]]:
    """Yield each member with the file to ingest for it, or the problem. A hard link gets those of its target."""
    targets: _LinkTargets | None = None
    members = Members(FileInput(descriptor, size_bytes))
    for member in members:
        if member.kind is not MemberKind.LINK:
            found = own_item(member, _locator(member))
        else:
            if targets is None:
                targets = _LinkTargets()
                targets.look(descriptor, size_bytes, member, members.defaults)
            found = targets.find(member)
        if targets is not None:
            targets.note(member, found)
        yield member, found


def _locator(member: Member) -> str:
    if member.extents is not None:
        return f"@{member.offset_byte}"
    return f"{member.start_byte}-{member.start_byte + member.size_bytes}"


def _unusable(name: str, error: SourceFailed) -> CafcatError:
    message = f"{name}: {error.message}"
    if error.problem == ProblemKind.VANISHED:
        return NotFound(message)
    return SourceFailed(message, problem=error.problem)
