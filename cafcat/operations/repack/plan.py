"""The chunks that a repack has chosen."""

from collections.abc import Sequence
from typing import NamedTuple

from cafcat.catalog.chunks.rewriting import RewritableChunk
from cafcat.errors import InvalidInput, Unsupported
from cafcat.formats import registry as formats
from cafcat.operations.repack.options import RepackOptions
from cafcat.operations.rewriting import format_after

__all__ = ["RepackGroup", "RepackPlan", "chosen", "refuse_elsewhere", "refuse_logs"]


class RepackPlan(NamedTuple):
    """The chunks to repack.

    Attributes:
        chunks: The chosen chunks, those with the largest share of dead space first; chunks that the user named, the
            oldest first.
        taken: Number of chunks left out because another repack or repair is copying their files.
        waiting: Number of chunks left out because they would exceed `max_repack_size`.
        format: Format of the new chunks; None for `format_after` of the old ones.
    """

    chunks: Sequence[RewritableChunk]
    taken: int
    waiting: int
    format: str | None = None

    def group_of(self, chunk: RewritableChunk) -> tuple[str, str]:
        """Return store and new format of a chunk. Files of chunks with equal groups can share a new chunk."""
        return chunk.store, self.format or format_after(chunk.format)


class RepackGroup(NamedTuple):
    """Chunks whose files can share new chunks.

    Attributes:
        url: URL of the store of the chunks.
        target: URL of the store for the new chunks.
        format: Format of the new chunks.
        chunks: The chunks, the oldest first.
    """

    url: str
    target: str
    format: str
    chunks: Sequence[RewritableChunk]


def refuse_elsewhere(chunks: Sequence[RewritableChunk], store: str | None) -> None:
    """Raise InvalidInput if one of the chunks is not in the store with this URL. None allows every store."""
    for chunk in chunks:
        if store is not None and chunk.store != store:
            hint = "leave --store or --chunk out"
            raise InvalidInput(f"chunk {chunk.uuid} is in the store {chunk.store}, not in {store}", hint=hint)


def refuse_logs(chunks: Sequence[RewritableChunk], options: RepackOptions) -> None:
    """Raise Unsupported for an archive of logs, unless the user chose another format for the new chunks.

    The copied sections are plain files, which cannot be searched. A user who names another format accepts this.
    """
    for chunk in chunks:
        if chunk.format == formats.LOGS and options.format in (None, formats.LOGS):
            hint = "use `cafcat copy`, or --format caf to pack its sections as plain files"
            raise Unsupported(
                "a clp-s archive (logs) can only be repacked into another format", chunk=str(chunk.uuid), hint=hint
            )


def chosen(found: Sequence[RewritableChunk], options: RepackOptions) -> RepackPlan:
    """Return the plan for chunks that were found, in this order, without those that exceed `max_repack_size`."""
    free = [chunk for chunk in found if not chunk.is_being_rewritten]
    chosen: list[RewritableChunk] = []
    live_bytes = 0
    for chunk in free:
        if options.max_repack_size is None or live_bytes + chunk.live_bytes <= options.max_repack_size:
            chosen.append(chunk)
            live_bytes += chunk.live_bytes
    return RepackPlan(chosen, len(found) - len(free), len(free) - len(chosen), options.format)
