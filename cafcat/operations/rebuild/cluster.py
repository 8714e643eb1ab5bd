"""Reads the indexes of chunks for a rebuild on the workers of an executor.

The workers only read the stores. The coordinator writes the catalog, in one transaction as without workers.
"""

from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from typing import Final, NamedTuple

from cafcat.catalog.transfer.rebuilding import PlannedChunk
from cafcat.operations.cluster_calls import ClusterCalls
from cafcat.operations.rebuild.reading import ReadChunk, index_size, read_chunk
from cafcat.session import Session
from cafcat.stores.base import Store

__all__ = ["read_on_cluster"]

_INDEX_BYTES: Final = 16 << 20
"""Number of bytes of small indexes that one call reads."""


class _Chunks(NamedTuple):
    """The chunks whose indexes one call reads, and the URLs of all stores of the rebuild, in their order."""

    planned: Sequence[PlannedChunk]
    stores: Sequence[str]


def read_on_cluster(
    calls: ClusterCalls, stores: Sequence[Store], planned: Iterable[PlannedChunk]
) -> Generator[ReadChunk, None, None]:
    """Read the indexes of chunks on the workers, and yield the results as the calls end.

    If a worker finds damage, or misses an object, this process reads the chunk again: the worker may see another
    folder or server under the URL of the store.

    Args:
        calls: Submits the calls.
        stores: The stores, in the order of the rebuild.
        planned: The chunks.

    Raises:
        ServerFailed: A store is out of reach, or denies access.
        Unavailable: A call failed too often.
    """
    urls = [store.url for store in stores]
    groups = calls.grouped(planned, lambda chunk: index_size(chunk) / _INDEX_BYTES)
    with closing(calls.run(_read_chunks, (_Chunks(group, urls) for group in groups))) as ended:
        for _, chunks in ended:
            for chunk in chunks:
                if chunk.failures:
                    chunk.close()
                    yield read_chunk(stores, chunk.planned)
                else:
                    yield chunk


def _read_chunks(session: Session, part: _Chunks) -> list[ReadChunk]:
    """Read the indexes of chunks on a worker. Their rows are sent back as the results."""
    stores = [session.stores[url] for url in part.stores]
    return [read_chunk(stores, planned) for planned in part.planned]
