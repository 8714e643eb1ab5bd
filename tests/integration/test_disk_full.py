"""Full disks of the store, the journal or Postgres: the error is one line, and no file is lost.

With free space again, recover and a second ingest complete the work.
"""

import contextlib
import itertools
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cafcat.embedded.roles import SUPERUSER
from cafcat.embedded.server import EmbeddedServer
from tests.crash.checker import look, problems
from tests.crash.places import Folder
from tests.crash.world import Outcome, World, zygote
from tests.worlds.servers.services import Databases

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")

PAGE_BYTES = 4096
STORE_PAGES = 64
DATABASE_BYTES = 400 << 20
ROOM_LEFT_BYTES = 3 << 20


@contextlib.contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("this machine lets nobody mount a tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path, left_bytes: int) -> Path:
    """Fill a disk except for this number of bytes, and return the filler."""
    filler = disk / "filler"
    room = os.statvfs(disk)
    filler.write_bytes(bytes(max(0, room.f_bavail * room.f_frsize - left_bytes)))
    return filler


def write_tree(folder: Path, files: int) -> dict[str, bytes]:
    content = random.Random(11)
    (folder / "tree").mkdir()
    for number in range(files):
        (folder / f"tree/{number:02}").write_bytes(content.randbytes(content.randrange(4000)))
    return {f"tree/{path.name}": path.read_bytes() for path in (folder / "tree").iterdir()}


def check_error(outcome: Outcome, *words: str) -> None:
    """Check that the error is one line, beside warnings about work for recover."""
    errors = [line for line in outcome.output.splitlines() if any(word in line for word in words)]
    assert errors, outcome
    assert all(line.startswith("cafcat: ") for line in outcome.output.splitlines()), outcome


@pytest.mark.slow
def test_a_store_that_is_full_at_every_page(quick_databases: Databases, memory: Path) -> None:
    """The free space grows page by page, until chunks, their names and the journal fit."""
    tree = write_tree(memory, 12)
    failures = 0
    with small_disk(memory / "disk", STORE_PAGES * PAGE_BYTES) as disk, zygote() as forked:
        store = Folder(disk / "store")
        world = World(memory, quick_databases, [store], forked)
        for pages in itertools.count():
            world.begin()
            filler = fill(disk, pages * PAGE_BYTES)
            outcome = world.cafcat("ingest", "-q", "--target-size", "9kB", "tree", code=None)
            if outcome.code == 0 and not world.sql("SELECT FROM journal WHERE unwritten <> '{}'"):
                break
            failures += 1
            if outcome.code:
                check_error(outcome, "No space left")
            filler.unlink()
            check_it_goes_on(world, tree)
        world.close()
    assert failures > 5


def check_it_goes_on(world: World, tree: dict[str, bytes]) -> None:
    world.cafcat("recover", "-q")
    seen = world.look()
    assert problems(seen) == []
    assert seen.live.items() <= tree.items()
    world.cafcat("ingest", "-q", "tree")
    seen = world.look()
    assert (problems(seen), seen.live) == ([], tree)


def write_long_names(folder: Path) -> dict[str, bytes]:
    """Write files with little content, and many megabytes of names for the catalog."""
    files = {}
    for number in range(4000):
        path = f"long/{'n' * 200}/{'a' * 200}/{'m' * 200}/{'e' * 200}/{number:04}{'s' * 200}"
        files[path] = b"%d" % number
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return files


def test_postgres_runs_out_of_room(memory: Path) -> None:
    """Postgres refuses a statement, or stops because it cannot write its log."""
    few = write_tree(memory, 12)
    many = write_long_names(memory)
    with small_disk(memory / "disk", DATABASE_BYTES) as disk, zygote() as forked:
        server = EmbeddedServer(disk / "home" / "postgres")
        try:
            server.connect().close()
            databases = Databases(server.conninfo("postgres", SUPERUSER))
            world = World(memory, databases, [Folder(memory / "store")], forked)
            world.begin()
            world.cafcat("ingest", "-q", "tree")
            filler = fill(disk, ROOM_LEFT_BYTES)
            outcome = world.cafcat("ingest", "-q", "--target-size", "100kB", "long", code=10)
            check_error(outcome, "room", "no answer from the database", "refused the connection")
            filler.unlink()
            server.connect().close()
            world.cafcat("recover", "-q")
            seen = look(world.database_url, world.places)
            assert problems(seen) == []
            assert few.items() <= seen.live.items() <= (few | many).items()
            assert len(seen.live) < len(few | many)
            world.cafcat("ingest", "-q", "tree", "long")
            seen = look(world.database_url, world.places)
            assert (problems(seen), seen.live) == ([], few | many)
        finally:
            server.stop()
