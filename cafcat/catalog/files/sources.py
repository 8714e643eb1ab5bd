"""The rows of `sources`: the roots, such as folders and buckets, that files were ingested from."""

import json
from collections.abc import Sequence
from typing import Final

from cafcat.catalog.by_key import BY_INDEX
from cafcat.catalog.connection import Connection

__all__ = ["Sources"]

_ASSIGN: Final = """
UPDATE file_locations SET source_id = %(source_id)s
WHERE file_path = ANY(%(paths)s) AND crc32c = (%(checksums)s::jsonb->>file_path)::bigint
  AND source_id IS DISTINCT FROM %(source_id)s
"""


class Sources:
    """Queries on the rows of `sources`. Every method except `add` is one transaction."""

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
