"""The commit of a chunk's mapping, against the limit: COPY of the same rows into a heap without any index."""

import time
from collections.abc import Iterator, Sequence
from functools import partial

from cafcat.formats import registry as formats
from cafcat.model import OnConflict
from cafcat.progress import Progress
from cafcat.session import SessionFactory
from cafcat.writing.chunk import ChunkTarget, OpenChunk
from tests.bench.bench import Bench, Home
from tests.bench.table import Row, at_least, figure, pair_ratios
from tests.bench.timing import in_turn, timed

_CONTENT = b"sixteen bytes ..."
_MODIFIED_NS = 1_767_225_600_000_000_000
_BLOCK_BYTES = 256 << 10
_SAME_ROWS = "COPY (SELECT * FROM file_locations ORDER BY file_path) TO STDOUT (FORMAT BINARY)"


def commit(bench: Bench) -> Iterator[Row]:
    """The time begins when the object is durable, and includes COMMIT and the journal record beside the chunk."""
    home = bench.home()
    _commit(home, bench.files)
    blocks = _rows(home)
    home.connection.execute("CREATE TABLE bare_heap (LIKE file_locations)")
    try:
        ways = {"heap": partial(_copy, home, blocks), "cafcat": partial(_commit, home, bench.files)}
        measured = in_turn(ways, bench.rounds)
    finally:
        home.connection.execute("DROP TABLE bare_heap")
        home.empty()
    rates = {name: [bench.files / seconds for seconds in values] for name, values in measured.items()}
    absolute = f"{bench.files:,} rows: {figure(rates['cafcat'], 'rows/s')}; COPY {figure(rates['heap'], 'rows/s')}"
    ratios = pair_ratios(rates["cafcat"], rates["heap"])
    yield Row(
        "commit", "commit of a chunk's mapping, rows/s", "COPY into a bare heap", at_least(0.55), ratios, absolute
    )


ROWS = (commit,)


class _TimeOfCheckpoint(Progress):
    """Notes when a checkpoint was passed last. `finish` passes the last one right before it commits."""

    seconds = 0.0

    def checkpoint(self) -> None:
        self.seconds = time.perf_counter()


def _commit(home: Home, files: int) -> float:
    """Return the seconds for committing one chunk into an empty catalog, where it stays."""
    home.empty()
    session = SessionFactory(home.settings)(Progress())
    catalog, store = session.catalog, session.stores[home.settings.store]
    catalog.stores.register(store.url)
    target = ChunkTarget(catalog, store, formats.by_name("caf"), None, "bench")
    chunk = OpenChunk(target)
    for number in range(files):
        path = f"projects/2026/instrument-07/run-{number // 500:06}/frame-{number:09}.dat"
        chunk.add(path, _CONTENT, _MODIFIED_NS + number * 1000)
    before_commit = _TimeOfCheckpoint()
    chunk.finish(OnConflict.REPLACE, before_commit)
    seconds = time.perf_counter() - before_commit.seconds
    catalog.close()
    assert home.files() == files
    return seconds


def _rows(home: Home) -> Sequence[bytes]:
    """Return the rows of the catalog in the binary form of COPY, in blocks of cafcat's own size."""
    with home.connection.cursor() as cursor, cursor.copy(_SAME_ROWS) as copy:
        stream = b"".join(copy)
    return [stream[start : start + _BLOCK_BYTES] for start in range(0, len(stream), _BLOCK_BYTES)]


def _copy(home: Home, blocks: Sequence[bytes]) -> float:
    """Return the seconds of a transaction that copies the rows into the empty heap."""
    home.connection.execute("TRUNCATE bare_heap")
    home.connection.execute("CHECKPOINT")
    return timed(lambda: _copy_all(home, blocks))


def _copy_all(home: Home, blocks: Sequence[bytes]) -> None:
    with (
        home.connection.transaction(),
        home.connection.cursor() as cursor,
        cursor.copy("COPY bare_heap FROM STDIN (FORMAT BINARY)") as copy,
    ):
        for block in blocks:
            copy.write(block)
