"""What an archive says of itself."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cafcat.archives.opening import OpenArchive, Part
from cafcat.errors import InvalidInput
from cafcat.formats.base import BlockReader, HasProperties, HasRemarks, MultiFileArchive, Reader, Remark
from cafcat.model import Entry

__all__ = ["Inspection", "look_into"]


@dataclass(frozen=True, slots=True)
class Inspection:
    """An archive without any catalog. object: its absolute path or URL; entries: what is in it, once; they stream,
    and raise Corrupt where the index is damaged."""

    format: str
    object: str
    size_bytes: int
    entries: Iterator[Entry]
    _tells: Reader | MultiFileArchive = field(repr=False)
    _parts: Callable[[], Iterator["Inspection"]] | None = field(default=None, repr=False)

    def about(self) -> Mapping[str, Any]:
        """What its format knows beyond that, as JSON has it: of CAF the `version`; of a CAR the `version`, `roots`
        (CIDs), and whether it is `indexed` and `fully_indexed`; of a clp-s archive the `version`, `log_bytes`,
        `packets` of metadata, `ranges` of records by log file and `timestamps`; of a bundle of DataBundle the
        `version`, `shards`, `compression`, `record_size`, and how many `files` and `directories` there are. Raises
        Corrupt."""
        return self._tells.properties() if isinstance(self._tells, HasProperties | MultiFileArchive) else {}

    def remarks(self) -> Sequence[Remark]:
        """Return remarks about an archive that is not damaged.

        A CAR may have blocks with a hash function that is not checked, and blocks in no file of its tree. Complete
        once all entries were taken. Raises Corrupt.
        """
        return self._tells.remarks() if isinstance(self._tells, HasRemarks) else ()

    def parts(self) -> Iterator["Inspection"]:
        """The files of an archive that is several, each with its own entries; else the archive. Raises NotFound,
        Corrupt."""
        return iter([self]) if self._parts is None else self._parts()

    def blocks(self) -> Iterator[Entry]:
        """Of a CAR: its blocks by their CIDs, also where `entries` are files. Raises Corrupt, InvalidInput for
        other formats."""
        if not isinstance(self._tells, BlockReader):
            raise InvalidInput(f"archives of the format {self.format} have no blocks with CIDs", path=self.object)
        return self._tells.blocks()


def look_into(archive: OpenArchive) -> Inspection:
    """Raises Corrupt, Unsupported."""
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
