"""`cafcat serve` against other servers of the same files of 4 KiB, by HTTP and by S3; and against SeaweedFS.

All servers have one process, and files and chunks are in the page cache. The client runs on the same processors, so
the main figure is the number of GETs in a CPU second of the server, with that of its database.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
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


class Contest(NamedTuple):
    """A peer, and the door of cafcat that it is compared with.

    Attributes:
        name: of the rows.
        title: of the peer.
        start: starts the peer.
        door: chooses our server.
        ours: its title.
        target: the smallest ratio of GETs in a CPU second.
    """

    name: str
    title: str
    start: Callable[[], AbstractContextManager[Served]]
    door: Callable[[Cafcat], Served]
    ours: str
    target: float | None = None


def http(bench: Bench) -> Iterator[Row]:
    """GETs by HTTP."""
    provide_programs(bench, "wrk", "nginx", "rclone")
    files = Files(bench)
    contests = [
        Contest(
            "serving.http nginx",
            "nginx",
            partial(nginx, bench.folder / "nginx-tree", files.root),
            lambda ours: ours.http,
            "cafcat serve",
            0.33,
        ),
        Contest(
            "serving.http rclone",
            "rclone serve http",
            partial(rclone, "http", files.root),
            lambda ours: ours.http,
            "cafcat serve",
        ),
    ]
    yield from _compared(bench, files, contests, "GETs of 4 KiB by HTTP", http_requests, "/files/")


def s3(bench: Bench) -> Iterator[Row]:
    """GETs by S3, signed and not."""
    provide_programs(bench, "wrk", "rclone", "weed")
    files = Files(bench)
    contests = [
        Contest(
            "serving.s3 rclone signed",
            "rclone serve s3, signed",
            partial(rclone, "s3", files.root, signed=True),
            lambda ours: ours.signed,
            "cafcat serve, S3, signed",
            1,
        ),
        Contest(
            "serving.s3 rclone public",
            "rclone serve s3",
            partial(rclone, "s3", files.root),
            lambda ours: ours.s3,
            "cafcat serve, S3, --public",
            1,
        ),
        Contest(
            "serving.s3 seaweedfs",
            "SeaweedFS, signed",
            partial(filled, bench, files),
            lambda ours: ours.signed,
            "cafcat serve, S3, signed",
        ),
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
            subjects[contest.ours] = Subject(contest.door(ours), partial(requests, targets=files.targets(before)))
            subjects[contest.title] = Subject(served, partial(requests, targets=files.targets()))
        loads = loads_in_turn(bench.folder, subjects, bench.rounds, SECONDS * min(1, bench.scale))
    work = f"{work}, {len(files.paths):,} files, {CONNECTIONS} connections"
    for contest in contests:
        if contest.title in missing:
            yield Row(contest.name, work, contest.title, NO_TARGET, missing=missing[contest.title])
        else:
            yield from rows_of(contest.name, work, loads, (contest.ours, contest.title), contest.target)
