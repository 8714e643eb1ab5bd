"""An example of a third-party source: zip:///FILE.zip supplies the members of a zip archive."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit
from zipfile import ZipFile, ZipInfo

from cafcat.errors import InvalidInput, NotFound, SourceFailed
from cafcat.model import FileProblem, ProblemKind, SourceFile
from cafcat.sources.base import OpenFile, Source
from cafcat.sources.kind import SourceContext, SourceKind
from cafcat.sources.names import check_name, prefixed, printable

__all__ = ["ZIP"]

_BLOCK_BYTES = 1 << 20


class ZipMember:
    """An opened member. Reading it fails if the archive was replaced or changed since."""

    etag = None

    def __init__(self, archive: Path, file: SourceFile) -> None:
        self._archive = archive
        self._path = file.path
        try:
            self._zip = ZipFile(archive)
            self._version = _version(archive)
            self._info = self._zip.getinfo(file.locator)
        except (OSError, KeyError) as error:
            raise self._failed(ProblemKind.VANISHED, "is not in the archive any more") from error
        self.size_bytes = self._info.file_size
        self.modified_ns: int | None = _modified_ns(self._info)

    def read(self) -> bytes:
        return b"".join(self.blocks())

    def blocks(self) -> Iterator[bytes]:
        with self._zip.open(self._info) as stream:
            while block := stream.read(_BLOCK_BYTES):
                yield block
        if _version(self._archive) != self._version:
            raise self._failed(ProblemKind.CHANGED, "the archive was changed while it was read")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._zip.close()

    def _failed(self, kind: ProblemKind, message: str) -> SourceFailed:
        return SourceFailed(message, path=printable(self._path), problem=kind.value)


class ZipSource:
    """The members of one archive, in byte order of their names."""

    def __init__(self, url: str, context: SourceContext) -> None:
        self.name = printable(url)
        self._archive = Path(unquote(urlsplit(url).path))
        self._context = context
        if not self._archive.is_absolute():
            raise InvalidInput(f"not a zip archive: {self.name}", hint="write zip:///FILE.zip")
        if not self._archive.is_file():
            raise NotFound(f"{self.name}: there is no such file")

    def files(self) -> Iterator[SourceFile | FileProblem]:
        with ZipFile(self._archive) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
        for member in sorted(members, key=lambda member: member.filename.encode()):
            wanted = self._context.filter
            if wanted is not None and not wanted.includes(member.filename):
                continue
            path = prefixed(self._context.prefix, member.filename)
            refused = check_name(path)
            if refused is None:
                yield SourceFile(path, member.file_size, _modified_ns(member), member.filename)
            else:
                yield FileProblem(printable(path), ProblemKind.NAME, refused)

    def open(self, file: SourceFile) -> OpenFile:
        return ZipMember(self._archive, file)


def _modified_ns(member: ZipInfo) -> int:
    return int(datetime(*member.date_time, tzinfo=UTC).timestamp()) * 1_000_000_000


def _version(archive: Path) -> tuple[int, int, int]:
    status = os.stat(archive)
    return status.st_ino, status.st_size, status.st_mtime_ns


class _ZipKind(SourceKind):
    def open(self, url: str, context: SourceContext) -> Source:
        return ZipSource(url, context)


ZIP = _ZipKind()
