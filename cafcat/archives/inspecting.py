"""What an archive says of itself."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cafcat.errors import InvalidInput
from cafcat.formats import registry as formats
from cafcat.formats.base import ListsBlocks, RandomReader, Reader, TellsMore
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
    _reader: Reader = field(repr=False)

    def about(self) -> Mapping[str, Any]:
        """What its format knows beyond that, as JSON has it: of CAF the `version`; of a CAR the `version`, `roots`
        (CIDs), and whether it is `indexed` and `fully_indexed`; of a clp-s archive the `version`, `log_bytes`,
        `packets` of metadata, `ranges` of records by log file and `timestamps`. Raises Corrupt."""
        return self._reader.about() if isinstance(self._reader, TellsMore) else {}

    def blocks(self) -> Iterator[Entry]:
        """Of a CAR: its blocks by their CIDs, also where `entries` are files. Raises Corrupt, InvalidInput for
        other formats."""
        if not isinstance(self._reader, ListsBlocks):
            raise InvalidInput(f"archives of the format {self.format} have no blocks with CIDs", path=self.object)
        return self._reader.blocks()


def look_into(archive: RandomReader) -> Inspection:
    """Its format is told by its content. Raises Corrupt, Unsupported."""
    archive_format = formats.detect(archive)
    reader = archive_format.reader(archive)
    return Inspection(archive_format.name, archive.name, archive.size_bytes, reader.entries(), reader)
