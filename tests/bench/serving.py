"""`cafcat serve` against other servers of the same files of 4 KiB, by HTTP and by S3; and against SeaweedFS.

All servers have one process, and files and chunks are in the page cache. The client runs on the same processors, so
the main figure is the number of GETs in a CPU second of the server, with that of its database.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from tests.bench.bench import Bench
from tests.bench.programs import find, provide_programs
from tests.bench.sample import Files
from tests.bench.seaweed import filled
from tests.bench.servers import Cafcat, Served, cafcat_server, nginx, rclone
from tests.bench.table import NO_TARGET, Row
from tests.bench.wrk import CONNECTIONS, Subject, http_requests, loads_in_turn, rows_of, s3_requests

__all__ = ["ROWS"]

SECONDS = 8
"""How long a measurement takes at full scale."""


class Door(NamedTuple):
    """A server of cafcat.

    Attributes:
        title: of the server.
        served: chooses it from all servers.
    """

    title: str
    served: Callable[[Cafcat], Served]


HTTP = Door("cafcat serve", attrgetter("http"))
PUBLIC = Door("cafcat serve, S3, --public", attrgetter("s3"))
SIGNED = Door("cafcat serve, S3, signed", attrgetter("signed"))


class Contest(NamedTuple):
    """A peer, and the door of cafcat that it is compared with.

    Attributes:
        name: of the rows.
        title: of the peer.
        start: starts the peer.
        door: the door of cafcat.
        target: the smallest ratio of GETs in a CPU second.
    """

    name: str
    title: str
    start: Callable[[], AbstractContextManager[Served]]
    door: Door
    target: float | None = None


def http(bench: Bench) -> Iterator[Row]:
    """GETs by HTTP."""
    provide_programs(bench, "wrk", "nginx", "rclone")
    files = Files(bench)
    tree, served = partial(nginx, bench.folder / "nginx-tree", files.root), partial(rclone, "http", files.root)
    contests = [
        Contest("serving.http nginx", "nginx", tree, HTTP, 0.33),
        Contest("serving.http rclone", "rclone serve http", served, HTTP),
    ]
    yield from _compared(bench, files, contests, "GETs of 4 KiB by HTTP", http_requests, "/files/")


def s3(bench: Bench) -> Iterator[Row]:
    """GETs by S3, signed and not."""
    provide_programs(bench, "wrk", "rclone", "weed")
    files = Files(bench)
    served = partial(rclone, "s3", files.root)
    contests = [
        Contest("serving.s3 rclone signed", "rclone serve s3, signed", partial(served, signed=True), SIGNED, 1),
        Contest("serving.s3 rclone public", "rclone serve s3", served, PUBLIC, 1),
        Contest("serving.s3 seaweedfs", "SeaweedFS, signed", partial(filled, bench, files), SIGNED),
    ]
    yield from _compared(bench, files, contests, "GETs of 4 KiB by S3", s3_requests, "/")


ROWS = (http, s3)


def _compared(
    bench: Bench,
    files: Files,
    contests: Sequence[Contest],
    work: str,
    requests: Callable[[Served, Sequence[str]], Sequence[bytes]],
    before: str,
) -> Iterator[Row]:
    """Measure all servers in turn, and yield the rows of each contest.

    Args:
        bench: the options.
        files: what is read.
        contests: the peers.
        work: description of the GETs.
        requests: makes the GETs of a list of targets.
        before: text before a path of the catalog in a target of cafcat.
    """
    find("wrk")
    missing: dict[str, str] = {}
    with ExitStack() as running:
        ours = running.enter_context(cafcat_server(files.home))
        subjects: dict[str, Subject] = {}
        for contest in contests:
            try:
                served = running.enter_context(contest.start())
            except NotImplementedError as error:
                missing[contest.title] = str(error)
                continue
            door = contest.door
            subjects[door.title] = Subject(door.served(ours), partial(requests, targets=files.targets(before)))
            subjects[contest.title] = Subject(served, partial(requests, targets=files.targets()))
        loads = loads_in_turn(bench.folder, subjects, bench.rounds, SECONDS * min(1, bench.scale))
    work = f"{work}, {len(files.paths):,} files, {CONNECTIONS} connections"
    for contest in contests:
        if contest.title in missing:
            yield Row(contest.name, work, contest.title, NO_TARGET, missing=missing[contest.title])
        else:
            yield from rows_of(contest.name, work, loads, (contest.door.title, contest.title), contest.target)
