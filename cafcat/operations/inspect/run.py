"""Describes an archive and its entries, for `cafcat inspect`. No catalog is needed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cafcat.archives.opening import OpenArchive, Part
from cafcat.errors import InvalidInput
from cafcat.formats.base import BlockReader, HasProperties, HasRemarks, MultiFileArchive, Reader, Remark
from cafcat.model import Entry

__all__ = ["Inspection", "inspect_archive"]


@dataclass(frozen=True, slots=True)
class Inspection:
    """Description of an archive, read from the archive alone, without any catalog.

    Attributes:
        format: Name of its format.
        object: Its absolute path or URL.
        size_bytes: Size of the archive.
        entries: Its entries, which are read from the archive while they are iterated. They can be iterated once. A
            damaged index raises Corrupt.
    """

    format: str
    object: str
    size_bytes: int
    entries: Iterator[Entry]
    _details: Reader | MultiFileArchive = field(repr=False)
    _parts: Callable[[], Iterator["Inspection"]] | None = field(default=None, repr=False)

    def about(self) -> Mapping[str, Any]:
        """Return further facts about the archive, which depend on its format, as JSON values.

        * CAF: `version`.
        * CAR: `version`, `roots` (CIDs), `indexed`, `fully_indexed`.
        * clp-s: `version`, `log_bytes`, `packets` of metadata, `ranges` of records by log file, `timestamps`.
        * DataBundle: `version`, `shards`, `compression`, `record_size`, and the numbers of `files` and
          `directories`.
        * Other formats: an empty mapping.

        Raises:
            Corrupt: The archive is damaged.
        """
        return self._details.properties() if isinstance(self._details, HasProperties | MultiFileArchive) else {}

    def remarks(self) -> Sequence[Remark]:
        """Return remarks about an archive: facts that are no damage. Empty if there are none.

        A CAR can have blocks with a hash function that cafcat does not check, and blocks in no file of its tree.
        The remarks are complete once all entries were iterated.

        Raises:
            Corrupt: The archive is damaged.
        """
        return self._details.remarks() if isinstance(self._details, HasRemarks) else ()

    def parts(self) -> Iterator["Inspection"]:
        """Yield an Inspection for each object of an archive in several files; this Inspection for other archives.

        Raises:
            NotFound: An object is missing.
            Corrupt: An object is damaged.
        """
        return iter([self]) if self._parts is None else self._parts()

    def blocks(self) -> Iterator[Entry]:
        """Yield the blocks of a CAR as entries that are named by their CIDs, even if `entries` are files.

        Raises:
            Corrupt: The archive is damaged.
            InvalidInput: The archive has another format.
        """
        if not isinstance(self._details, BlockReader):
            raise InvalidInput(
                f"only CARs have blocks with CIDs, not archives of format {self.format}", path=self.object
            )
        return self._details.blocks()


def inspect_archive(archive: OpenArchive) -> Inspection:
    """Return the description of an archive, from the archive alone.

    Raises:
        Corrupt: The archive is damaged.
        Unsupported, NotInstalled: The archive cannot be read here.
    """
    name = archive.format.name
    if archive.multi_file is None:
        return _part(name, next(archive.parts()))

    def parts() -> Iterator[Inspection]:
        return (_part(name, part) for part in archive.parts())

    entries = (entry for part in parts() for entry in part.entries)
    return Inspection(name, archive.name, archive.size_bytes, entries, archive.multi_file, parts)


def _part(name: str, part: Part) -> Inspection:
    archive, reader = part
    return Inspection(name, archive.name, archive.size_bytes, reader.entries(), reader)
