"""Records by how much a transaction changes the totals of folders: rows of folder_deltas.

Each transaction only inserts rows, so no two transactions wait for the row of a common folder, such as that of the
whole catalog. `FolderTotals.fold` adds the rows to folder_totals later.
"""

from typing import Final

from cafcat.catalog.connection import PgConnection
from cafcat.catalog.files import folder_counts
from cafcat.catalog.files.folder_counts import FolderCounts
from cafcat.catalog.files.lookup import size_of

__all__ = ["COUNTED_FOLDERS", "COUNT_FOLDERS", "copy_folders", "record_folders"]

_CHANGES_PER_FOLDER: Final = """
SELECT sum(p.files)::bigint, sum(p.bytes)::bigint, d.depth,
       array_to_string(p.names[1:d.depth] || ''::text, '/')
FROM (SELECT string_to_array(folder, '/') AS names, files, bytes
      FROM (SELECT coalesce(substring(file_path FROM '^.*/'), '') AS folder,
                   sum(files) AS files, sum(bytes) AS bytes
            FROM ({files}) AS changed GROUP BY 1) AS f OFFSET 0) AS p
CROSS JOIN LATERAL generate_series(0, greatest(cardinality(p.names) - 1, 0)) AS d (depth)
GROUP BY 3, 4 HAVING sum(p.files) <> 0 OR sum(p.bytes) <> 0
"""
"""SQL query of the changes of each folder: files, bytes, depth, path. {files} is a query of the changes of files.

First the files of each folder are added up, and then each folder is added to all folders above it. `names` are the
names in the path of a folder, and an empty text after its last slash; nothing for files without a folder. OFFSET 0
lets the server split each path once.
"""
COUNTED_FOLDERS: Final = _CHANGES_PER_FOLDER.format(
    files=f"SELECT file_path, 1 AS files, {size_of()} AS bytes FROM file_locations"  # noqa: S608
)
"""SQL query that counts the files of all folders. It reads all rows of file_locations."""
COUNT_FOLDERS: Final = f"INSERT INTO folder_totals ({folder_counts.COLUMNS}) {COUNTED_FOLDERS}"
"""Statement that fills the empty table folder_totals."""


def copy_folders(connection: PgConnection, folders: FolderCounts) -> None:
    """Record that the files of a chunk were added, in the open transaction.

    Args:
        connection: A connection with an open transaction.
        folders: Number and size of the files in each folder.
    """
    statement = f"COPY folder_deltas ({folder_counts.COLUMNS}) FROM STDIN (FORMAT BINARY)".encode()
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for block in folders.blocks():
            copy.write(block)


def record_folders(connection: PgConnection, files: str) -> int:
    """Record changes of files in the folders that contain them, in the open transaction.

    Args:
        connection: A connection with an open transaction.
        files: SQL query with a row for each changed file: its path (file_path), the change of the number of files
            (files: 1, 0 or -1) and of their size (bytes).

    Returns:
        The change of the total size of all files, in bytes.
    """
    statement = (
        f"WITH new AS (INSERT INTO folder_deltas ({folder_counts.COLUMNS}) "  # noqa: S608
        f"{_CHANGES_PER_FOLDER.format(files=files)} RETURNING depth, bytes) "
        "SELECT coalesce(sum(bytes), 0)::bigint FROM new WHERE depth = 0"
    )
    row = connection.execute(statement.encode()).fetchone()
    return int(row[0]) if row else 0
