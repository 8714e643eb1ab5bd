"""A data set whose samples are read by their numbers: `PackedDataset`."""

from collections.abc import Iterable, Sequence
from typing import Any

from cafcat.datasets.names import Names
from cafcat.datasets.source import Contents, FileSource, Transform, paths_of, sample_of

__all__ = ["PackedDataset"]


class PackedDataset:
    """Packed files as a map-style data set of PyTorch: each file is a sample, with a number.

    PyTorch's DataLoader requests a whole batch by one call of `__getitems__`: files that are near each other in a
    chunk of a bucket then share a request. The object can be pickled into worker processes, and used after a fork.
    """

    def __init__(
        self,
        source: FileSource,
        paths: Iterable[str] | None = None,
        *,
        prefix: str = "",
        transform: Transform | None = None,
    ) -> None:
        """Create a data set. Paths are listed now, and files are read later.

        Args:
            source: A Repository, or a Snapshot. For training, a snapshot is several times faster, needs no
                database, and does not change.
            paths: Paths of the files, in the order of their numbers. None: all files below `prefix`, in path order.
            prefix: A folder, or a file; "" for all files. Ignored if `paths` is given.
            transform: Called with path and bytes of a file; its result is the sample. None: the sample is the pair
                of path and bytes.

        Raises:
            InvalidInput: `paths` is a single text.
            CafcatError: The files cannot be listed.
        """
        self._source = source
        self._names = Names(paths_of(source, paths, prefix))
        self._transform = transform
        self._contents = Contents(source)

    @property
    def paths(self) -> Sequence[str]:
        """Paths of all samples, by their numbers."""
        return self._names

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: int) -> Any:
        """Return a sample by its number; a negative number counts from the end.

        Raises:
            IndexError: There is no such sample.
            CafcatError: The file cannot be read, as `PackedFiles.read` raises it.
        """
        path = self._names[index]
        return sample_of(path, self._source.read(path), self._transform)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return several samples in the order of their numbers, which are read with few requests.

        Raises:
            IndexError: One of the samples does not exist.
            CafcatError: A file cannot be read: the error of the first such sample.
        """
        paths = [self._names[index] for index in indices]
        contents = self._contents.read(sorted(set(paths)))  # most files were packed in this order
        return [sample_of(path, contents[path], self._transform) for path in paths]
