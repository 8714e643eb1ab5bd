"""Files of folders in columns: a sequence that makes an object for a file only when the file is taken from it."""

import os
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple, overload

from cafcat.model import SourceFile
from cafcat.native.folder import ListedFolder

__all__ = ["FileColumns", "FilesOfFolder"]


class FilesOfFolder(NamedTuple):
    """Adjacent files of one folder.

    Attributes:
        folder: Path of the folder in the catalog, with a slash at its end.
        listed: The names in the folder.
        begin: Position of the first of these files among the names.
        end: Position after the last one.
    """

    folder: str
    listed: ListedFolder
    begin: int
    end: int

    def sizes(self) -> Sequence[int]:
        """Return the size of each file in bytes."""
        return _numbers(self.listed.sizes)[self.begin : self.end]


class FileColumns(Sequence[SourceFile]):
    """Files in ascending order of their paths, in parts of one folder each.

    Attributes:
        parts: The files; at least one in each part.
        base: Folder of all files for the operating system, with a slash at its end.
        skip: Number of bytes of each path before the name below that folder.
    """

    def __init__(self, parts: Sequence[FilesOfFolder], base: bytes, skip: int) -> None:
        self.parts = parts
        self.base = base
        self.skip = skip

    @property
    def first_path(self) -> str:
        """Path of the first file."""
        return self.parts[0].listed.path(self.parts[0].begin)

    @property
    def last_path(self) -> str:
        """Path of the last file, which is the largest one."""
        return self.parts[-1].listed.path(self.parts[-1].end - 1)

    @property
    def last(self) -> SourceFile:
        """The last file."""
        part = self.parts[-1]
        return self.of_part(part, part.end - 1, part.end)[0]

    @property
    def size_bytes(self) -> int:
        """Total size of the files."""
        return sum(sum(part.sizes()) for part in self.parts)

    def of_part(self, part: FilesOfFolder, begin: int, end: int) -> list[SourceFile]:
        """Return the files between two positions among the names of a part's folder."""
        columns = zip(*(_numbers(column)[begin:end] for column in part.listed[1:5]), strict=True)
        at = _numbers(part.listed.ends)[begin - 1] if begin else 0
        files = []
        for path_end, size_bytes, modified_ns, changed_ns in columns:
            path, at = part.listed.paths[at : path_end - 1], path_end
            locator = os.fsdecode(self.base + path[self.skip :])
            files.append(SourceFile(path.decode(), size_bytes, modified_ns, locator, None, changed_ns))
        return files

    def pieces(self, most_files: int, most_bytes: int) -> Iterator["FileColumns"]:
        """Yield the files in pieces that can be sent to other processes.

        Args:
            most_files: Largest number of files in a piece.
            most_bytes: Largest size of its files; a piece of one file may be larger.
        """
        parts: list[FilesOfFolder] = []
        count = size_bytes = 0
        for part in self.parts:
            sums = list(accumulate(part.sizes(), initial=0))
            begin, files = 0, len(sums) - 1
            while True:
                end_by_bytes = bisect_right(sums, sums[begin] + most_bytes - size_bytes) - 1
                end = min(files, begin + most_files - count, max(end_by_bytes, begin if count else begin + 1))
                parts += _alone(part, part.begin + begin, part.begin + end)
                if end == files:
                    count, size_bytes = count + end - begin, size_bytes + sums[end] - sums[begin]
                    break
                yield FileColumns(parts, self.base, self.skip)
                parts, begin, count, size_bytes = [], end, 0, 0
        if parts:
            yield FileColumns(parts, self.base, self.skip)

    def __len__(self) -> int:
        return sum(part.end - part.begin for part in self.parts)

    @overload
    def __getitem__(self, index: int) -> SourceFile: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[SourceFile]: ...

    def __getitem__(self, index: int | slice) -> SourceFile | Sequence[SourceFile]:
        return self._files[index]

    def __iter__(self) -> Iterator[SourceFile]:
        return iter(self._files)

    @cached_property
    def _files(self) -> list[SourceFile]:
        return [file for part in self.parts for file in self.of_part(part, part.begin, part.end)]


def _alone(part: FilesOfFolder, begin: int, end: int) -> list[FilesOfFolder]:
    """Return files of a part without the other names of their folder; an empty list if there are no files."""
    if begin == end:
        return []
    if end - begin == len(part.listed.kinds):
        return [part]
    listed, ends = part.listed, _numbers(part.listed.ends)
    first = ends[begin - 1] if begin else 0
    moved = array("q", [place - first for place in ends[begin:end]]).tobytes()
    sizes, modified, changed = (column[begin * 8 : end * 8] for column in listed[2:5])
    paths, kinds = listed.paths[first : ends[end - 1]], listed.kinds[begin:end]
    alone = ListedFolder(paths, moved, sizes, modified, changed, kinds)
    return [FilesOfFolder(part.folder, alone, 0, end - begin)]


def _numbers(column: bytes) -> "memoryview[int]":
    return memoryview(column).cast("q")
