"""Files of folders in columns: a sequence that makes an object for a file only when the file is used."""

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import overload

from cafcat.model import SourceFile
from cafcat.native.folder import ListedFiles, numbers

__all__ = ["FileColumns", "source_files"]


class FileColumns(Sequence[SourceFile]):
    """Files in ascending order of their paths, in parts of one folder, or of several small folders.

    Attributes:
        parts: The files; at least one in each part.
    """

    def __init__(self, parts: Sequence[ListedFiles]) -> None:
        self.parts = parts

    @property
    def first_path(self) -> str:
        """Path of the first file."""
        return self.parts[0].first_path

    @property
    def last_path(self) -> str:
        """Path of the last file, which is the largest one."""
        return self.parts[-1].last_path

    @property
    def last(self) -> SourceFile:
        """The last file."""
        part = self.parts[-1]
        return source_files(part.between(part.end - 1, part.end))[0]

    @property
    def size_bytes(self) -> int:
        """Total size of the files."""
        return sum(sum(part.sizes()) for part in self.parts)

    def pieces(self, most_files: int, most_bytes: int) -> Iterator["FileColumns"]:
        """Yield the files in pieces that can be sent to other processes.

        Args:
            most_files: Largest number of files in a piece.
            most_bytes: Largest size of its files; a piece of one file may be larger.
        """
        parts: list[ListedFiles] = []
        count = size_bytes = 0
        for part in self.parts:
            sums = list(accumulate(part.sizes(), initial=0))
            begin, files = 0, len(sums) - 1
            while True:
                end_by_bytes = bisect_right(sums, sums[begin] + most_bytes - size_bytes) - 1
                end = min(files, begin + most_files - count, max(end_by_bytes, begin if count else begin + 1))
                if end > begin:
                    parts.append(part.between(part.begin + begin, part.begin + end).alone())
                if end == files:
                    count, size_bytes = count + end - begin, size_bytes + sums[end] - sums[begin]
                    break
                yield FileColumns(parts)
                parts, begin, count, size_bytes = [], end, 0, 0
        if parts:
            yield FileColumns(parts)

    def __len__(self) -> int:
        return sum(part.file_count for part in self.parts)

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
        return [file for part in self.parts for file in source_files(part)]


def source_files(files: ListedFiles) -> list[SourceFile]:
    """Return listed files as objects."""
    listed, begin, end = files.listed, files.begin, files.end
    columns = (
        numbers(column)[begin:end] for column in (listed.ends, listed.sizes, listed.modified, listed.changed)
    )
    at = numbers(listed.ends)[begin - 1] if begin else 0
    found = []
    for path_end, size_bytes, modified_ns, changed_ns in zip(*columns, strict=True):
        path, at = listed.paths[at : path_end - 1], path_end
        locator = os.fsdecode(files.base + path[files.skip :])
        found.append(SourceFile(path.decode(), size_bytes, modified_ns, locator, None, changed_ns))
    return found
