"""The rows of `sources`: the roots, such as folders and buckets, that files were ingested from."""

import json
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from cafcat.catalog.by_key import BY_INDEX
from cafcat.catalog.connection import Connection
from cafcat.catalog.files.scope import folder_range, successor

__all__ = ["SourceVersion", "Sources"]

_ASSIGN: Final = """
UPDATE file_locations SET source_id = %(source_id)s
WHERE file_path = ANY(%(paths)s) AND crc32c = (%(checksums)s::jsonb->>file_path)::bigint
  AND source_id IS DISTINCT FROM %(source_id)s
"""


# The last row has the last path of the page. The number of rows of a page is limited before those of other sources
# are left out, so that no statement reads the whole catalog.
_VERSIONS: Final = """
WITH page AS MATERIALIZED (
    SELECT file_path, caf_file_id, start_byte, source_id FROM file_locations
    WHERE file_path >= %(low)s {upper_bound} ORDER BY file_path LIMIT %(limit)s
)
(SELECT file_path, caf_file_id, start_byte, source_id IS NOT NULL FROM page
 WHERE source_id = %(source_id)s OR source_id IS NULL ORDER BY file_path)
UNION ALL SELECT max(file_path), count(*), 0, false FROM page
"""
_PAGE_ROWS: Final = 20_000


class SourceVersion(NamedTuple):
    """The live version of a file that came from a certain source, or from an unknown one.

    Attributes:
        path: Path of the file.
        chunk_id: chunks.id of its chunk.
        start_byte: First byte of the file in the chunk.
        is_known: False if the source is unknown, as after a rebuild.
    """

    path: str
    chunk_id: int
    start_byte: int
    is_known: bool


class Sources:
    """Queries on the rows of `sources`. Every method is one transaction, except `add` and `versions`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def find(self, url: str) -> int | None:
        """Return sources.id of the root with a URL; None if the catalog has no row of this root."""
        with self._connection.statement() as connection:
            row = connection.execute("SELECT id FROM sources WHERE url = %s", [url]).fetchone()
        return None if row is None else int(row[0])

    def add(self, url: str) -> int:
        """Return sources.id of a root, after inserting its row if there is none."""
        found = self.find(url)
        if found is not None:
            return found
        with self._connection.statement() as connection:
            connection.execute("INSERT INTO sources (url) VALUES (%s) ON CONFLICT DO NOTHING", [url])
        return self.add(url)

    def versions(self, source_id: int, folder: str) -> Iterator[SourceVersion]:
        """Yield the live files below a folder that came from one source, or from an unknown one, in order.

        The order is that of the bytes of their paths.

        Each page is a transaction of its own. All files below the folder are read, those of other sources, too.

        Args:
            source_id: sources.id.
            folder: Folder of the catalog, with a slash at its end; "" for the whole catalog.
        """
        low, high = folder_range(folder)
        statement = _VERSIONS.format(upper_bound="AND file_path < %(high)s" if high else "").encode()
        while True:
            parameters = {"source_id": source_id, "low": low, "high": high, "limit": _PAGE_ROWS}
            with self._connection.by_index() as connection:
                rows = connection.execute(statement, parameters).fetchall()
            last, count, *_ = rows.pop()
            yield from (SourceVersion(*row) for row in rows)
            if count < _PAGE_ROWS:
                return
            low = successor(last)

    def assign(self, source_id: int, files: Sequence[tuple[str, int]]) -> None:
        """Set the source of files whose content at this source was found to be the same as in the catalog.

        Args:
            source_id: sources.id.
            files: Path and CRC-32C of each file. A path keeps its source if the catalog has another CRC-32C for it,
                because another run has replaced the file meanwhile.
        """
        with self._connection.transaction() as connection:
            # During a change of the layout, the trigger's statements have to see the rows of the last batch.
            connection.execute(f"SET TRANSACTION ISOLATION LEVEL READ COMMITTED; {BY_INDEX}".encode())
            parameters = {
                "source_id": source_id,
                "paths": [path for path, _ in files],
                "checksums": json.dumps(dict(files)),
            }
            connection.execute(_ASSIGN, parameters)
