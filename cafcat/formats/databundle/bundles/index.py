"""Writes and reads the index of a bundle: a folder in LevelDB's format, by LevelDB itself (plyvel)."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from cafcat.errors import Corrupt, NotInstalled, StoreFailed
from cafcat.formats.databundle.extras import import_extra
from cafcat.formats.databundle.layout import FILE_METADATA, record_key

__all__ = ["LEVELDB_BINDINGS", "BundleIndex", "IndexBatch"]

LEVELDB_BINDINGS: Final = ("plyvel_next", "plyvel")
"""Modules with the same API, in the order in which they are tried (docs/decisions/0025)."""

_BATCH_ROWS: Final = 1000
"""Number of rows that are written together."""
_NO_SPACE: Final = "No space left"
"""Text in LevelDB's errors if the disk is full."""
_KEY_PREFIX_BYTES: Final = 9
"""Size in bytes of the start of a record key: table and shard."""


class BundleIndex:
    """The open index of a bundle. Only one process can open an index at a time; threads may share it.

    LevelDB writes a lock and a log into the folder even if it only reads. Methods raise Corrupt if the index is
    damaged, and StoreFailed if it cannot be read or written.
    """

    def __init__(
        self, folder: Path, *, create: bool = False, is_copy: bool = False, label: str | None = None
    ) -> None:
        """Open the index, or create an empty one.

        Args:
            folder: the folder of the index.
            create: True to create the index, which must not exist.
            is_copy: True if no other process uses the folder. Then a file that cannot be read is reported as
                damage.
            label: the name of the index in messages; None means the path of the folder.

        Raises:
            NotInstalled: no binding of LevelDB is installed.
            Corrupt: the index is damaged, or is missing and `create` is False.
            StoreFailed: another process has opened the index, the disk is full, or the index cannot be created.
        """
        self._name = label or str(folder)
        self._is_copy = is_copy
        self._library = _leveldb()
        with self._translate_errors():
            # With paranoid_checks, rows in a damaged log are an error; otherwise LevelDB would skip them.
            self._rows = self._library.DB(
                str(folder), create_if_missing=create, error_if_exists=create, paranoid_checks=True
            )

    @contextmanager
    def batch(self) -> Iterator["IndexBatch"]:
        """Provide an object that writes rows in groups of 1000.

        The last group is written when the context ends without an error. Errors of LevelDB become StoreFailed or
        Corrupt.
        """
        with self._translate_errors():
            batch = IndexBatch(self._rows)
            yield batch
            batch.flush()

    def put_durably(self, key: bytes, value: bytes) -> None:
        """Write a row, so that this row and all earlier rows are durable when the call returns."""
        with self._translate_errors():
            self._rows.put(key, value, sync=True)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of the row with this key, or None if the index has no such row."""
        with self._translate_errors():
            found: bytes | None = self._rows.get(key, verify_checksums=True)
        return found

    def files(self) -> Iterator[tuple[bytes, bytes]]:
        """Return the key and the value of each row of a file or directory, in the order of folder and name."""
        return self._range(bytes([FILE_METADATA]), bytes([FILE_METADATA + 1]))

    def records(self, shard: int, offset: int) -> Iterator[tuple[bytes, bytes]]:
        """Return the key and the value of each record row of a shard, from the record that contains `offset` on.

        No rows are returned if no record of the shard begins at or before the offset. `offset` is in bytes of data
        before compression.
        """
        first_key, end = record_key(shard, offset), record_key(shard + 1, 0)
        begin = self._last_key_up_to(first_key)
        return self._range(begin, end) if begin[:_KEY_PREFIX_BYTES] == first_key[:_KEY_PREFIX_BYTES] else iter(())

    def _last_key_up_to(self, key: bytes) -> bytes:
        """Return the largest key in the index that is not greater than `key`, or b"" if the index has none.

        This uses LevelDB's raw iterator: plyvel's iterator finds nothing backwards from a position after all keys.
        """
        with self._translate_errors(), self._rows.raw_iterator(verify_checksums=True) as rows:
            rows.seek(key)
            if not rows.valid():
                rows.seek_to_last()
            elif rows.key() != key:
                rows.prev()
            return bytes(rows.key()) if rows.valid() else b""

    def _range(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        with self._translate_errors(), self._rows.iterator(start=start, stop=stop, verify_checksums=True) as rows:
            yield from rows

    def close(self) -> None:
        """Close the index, so that other processes can open it."""
        self._rows.close()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except self._library.Error as error:
            reason = _reason(error)
            if isinstance(error, OSError) and not (self._is_copy and _NO_SPACE not in reason):
                message = f"the index of the bundle cannot be read or written: {reason}"
                raise StoreFailed(message, chunk=self._name) from error
            raise Corrupt(f"the index of the bundle cannot be used: {reason}", chunk=self._name) from error


def _reason(error: Exception) -> str:
    """Return the text of an error of LevelDB in one line. Its library raises errors whose text is bytes."""
    text = error.args[0].decode(errors="replace") if error.args and isinstance(error.args[0], bytes) else str(error)
    return " ".join(text.split())


class IndexBatch:
    """Writes rows into the index of a bundle in groups of 1000. Created by `BundleIndex.batch`."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows
        self._pending: list[tuple[bytes, bytes]] = []

    def put(self, key: bytes, value: bytes) -> None:
        """Add a row, and write all added rows once they are 1000."""
        self._pending.append((key, value))
        if len(self._pending) >= _BATCH_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write the added rows. This does not make them durable."""
        with self._rows.write_batch() as batch:
            for key, value in self._pending:
                batch.put(key, value)
        self._pending.clear()


def _leveldb() -> Any:
    """Return the installed Python module that gives access to LevelDB. Raises NotInstalled if there is none."""
    for binding in LEVELDB_BINDINGS[:-1]:
        with suppress(NotInstalled):
            return import_extra(binding)
    return import_extra(LEVELDB_BINDINGS[-1])
