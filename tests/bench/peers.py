"""(a) into other archives. The table names a missing peer as missing; --install-peers installs it (Debian)."""

import shutil
import sys
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from tests.bench.bench import Bench
from tests.bench.data import read_all
from tests.bench.table import NO_TARGET, Row, pair_ratios
from tests.bench.timing import Way, in_turn, run, seconds_of, shell, timed


class Peer(NamedTuple):
    """Another program. Commands get $1, the archive, $2, the tree, and $3, this Python. `prepare` is not timed."""

    title: str
    program: str
    package: str
    command: str
    prepare: str = ":"


_ZIPFILE = """
import os, sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as archive:
    for folder, _, names in os.walk(sys.argv[2]):
        for name in names:
            archive.write(os.path.join(folder, name))
"""
PEERS = (
    Peer("zip -0 + sync", "zip", "zip", 'zip -0 -q -r "$1" "$2" && sync "$1"'),
    Peer("python zipfile + sync", sys.executable, "python3", f'"$3" -c \'{_ZIPFILE}\' "$1" "$2" && sync "$1"'),
    Peer(
        "restic backup",
        "restic",
        "restic",
        'RESTIC_PASSWORD=bench restic -q --no-cache -r "$1" backup "$2"',
        'RESTIC_PASSWORD=bench restic -q --no-cache -r "$1" init',
    ),
    Peer(
        "borg create",
        "borg",
        "borgbackup",
        'BORG_BASE_DIR="$1.home" BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes borg create "$1::bench" "$2"',
        'mkdir -p "$1.home" && BORG_BASE_DIR="$1.home" borg init -e none "$1"',
    ),
)


def peers(bench: Bench) -> Iterator[Row]:
    """Rows for one peer after the other, each in turn with cafcat."""
    if bench.install_peers:
        install(bench)
    read_all(bench.small.paths())
    for peer in PEERS:
        work = f"ingest (a), {bench.files:,} files"
        row = Row(f"peers.{peer.package}", work, peer.title, NO_TARGET)
        if shutil.which(peer.program) is None:
            yield row._replace(missing=f"missing: apt-get install {peer.package}, or --install-peers")
            continue
        ways: dict[str, Way] = {
            peer.title: partial(_archive, bench, peer),
            "cafcat": lambda: bench.ingest_anew(bench.small),
        }
        measured = in_turn(ways, bench.rounds)
        ratios = pair_ratios(measured["cafcat"], measured[peer.title])
        yield row._replace(ratios=ratios, absolute=seconds_of(measured, "cafcat", peer.title))


ROWS = (peers,)


def install(bench: Bench) -> None:
    """Install the missing peers from Debian. If that fails, they stay missing."""
    missing = [peer.package for peer in PEERS if shutil.which(peer.program) is None]
    if missing:
        try:
            run("apt-get", "install", "-y", "-q", *missing, environ={"DEBIAN_FRONTEND": "noninteractive"})
        except (OSError, RuntimeError) as error:
            bench.say(f"could not install {', '.join(missing)}: {error}")


def _archive(bench: Bench, peer: Peer) -> float:
    """Return the seconds for making an archive that does not exist yet."""
    place = bench.folder / "peer.archive"
    arguments = (place, bench.small.name, sys.executable)
    shell(peer.prepare, *arguments, cwd=bench.folder)
    seconds = timed(lambda: shell(peer.command, *arguments, cwd=bench.folder))
    for left in bench.folder.glob(f"{place.name}*"):
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    return seconds
