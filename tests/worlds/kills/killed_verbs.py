"""Processes that kill themselves at a step of a verb.

Usage: `python -m tests.worlds.kills.killed_verbs VERB [ARGUMENT...]`.

Each line on stdin is the number of a step, counted from the first call of a method of the catalog. The answer is
the exit code of the child that was killed there; with 0 when the verb has no such step.
"""

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import botocore.httpsession

import cafcat
from cafcat.catalog.chunks.adopting import Adopting
from cafcat.catalog.chunks.chunks import Chunks
from cafcat.catalog.chunks.copies import Copies
from cafcat.catalog.chunks.pruning import Pruning
from cafcat.catalog.chunks.recovery import Recovery
from cafcat.catalog.chunks.rewriting import Rewriting
from cafcat.catalog.files.removal import Removal
from tests.worlds.kills.killed_steps import Steps


class Verb(NamedTuple):
    """`room` and `method`: the first call from which steps are counted. `run` gets the repository and the step."""

    room: type
    method: str
    run: Callable[..., None]


def ingest(repository: cafcat.Repository, number: int) -> None:
    repository.ingest(["tree"], prefix=f"run-{number:03}")


def recover(repository: cafcat.Repository, _: int) -> None:
    repository.recover()


def remove(repository: cafcat.Repository, number: int) -> None:
    repository.rm([f"{number}/gone"], folders=[f"{number}/alone"])


def undelete(repository: cafcat.Repository, number: int) -> None:
    repository.undelete([f"{number}/gone"], folders=[f"{number}/alone"])


def prune(repository: cafcat.Repository, _: int) -> None:
    assert repository.prune(grace_seconds=0).failed == ()


def repack(repository: cafcat.Repository, _: int) -> None:
    report = repository.repack(max_unused=0.0, target_size=3000)
    assert (report.files_damaged, report.failed) == (0, [])


def repair(repository: cafcat.Repository, _: int) -> None:
    [chunk] = [chunk for chunk in repository.chunks() if chunk.state == "committed"]
    report = repository.repair(chunks=[str(chunk.uuid)], sources=["tree"])
    assert report.files_lost == 0


def copy(repository: cafcat.Repository, _: int, to: str) -> None:
    assert repository.copy(to=to).failed == ()


def recover_copies(repository: cafcat.Repository, _: int, store: str) -> None:
    assert repository.recover(store=store).failed == ()


def adopt(repository: cafcat.Repository, _: int) -> None:
    assert repository.adopt(["there/x.car"]).failed == []


VERBS = {
    "ingest": Verb(Chunks, "begin_chunk", ingest),
    "recover": Verb(Recovery, "remains", recover),
    "rm": Verb(Removal, "remove", remove),
    "undelete": Verb(Removal, "restore", undelete),
    "prune": Verb(Pruning, "prunable", prune),
    "repack": Verb(Rewriting, "wasteful", repack),
    "repair": Verb(Rewriting, "by_uuid", repair),
    "copy": Verb(Copies, "totals", copy),
    "adopt": Verb(Adopting, "check_new", adopt),
    "recover-copies": Verb(Copies, "remains", recover_copies),
}


def run_child(verb: Verb, number: int, arguments: list[str]) -> None:
    """Run the verb in this child process. Never returns."""
    try:
        with cafcat.open() as repository:
            count_from(verb, number)
            verb.run(repository, number, *arguments)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def count_from(verb: Verb, number: int) -> None:
    steps = Steps()
    steps.begin_at(verb.room, verb.method, number)
    steps.count_files()
    steps.count_statements()
    session: Any = botocore.httpsession.URLLib3Session
    steps.count(session, "send")


def main() -> None:
    verb, *arguments = sys.argv[1:]
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            run_child(VERBS[verb], int(line), arguments)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
