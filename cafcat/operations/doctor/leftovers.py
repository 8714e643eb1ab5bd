"""Checks for leftovers of dead writers and broken runs."""

from collections.abc import Iterator
from typing import Final

from cafcat.operations.doctor.examination import Examination, days_since
from cafcat.operations.doctor.found import Found, ok, warning
from cafcat.support.quantities import plural

__all__ = ["journal", "runs", "shards", "writers"]

_RECOVER: Final = "run: cafcat recover"
_LATE_DAYS: Final = 0.01
"""A journal record is usually written within a second. A quarter of an hour is late."""


def writers(examination: Examination) -> Iterator[Found]:
    """Look for writers whose lease has expired, and for objects that were given up and not removed."""
    totals = examination.totals
    expired = {kind: leases.expired for kind, leases in totals.leases.items() if leases.expired and kind != "shard"}
    left = {kind: count for kind, count in totals.left.items() if count}
    if expired:
        yield warning(f"writers have died, and left unfinished: {_listed(expired)}", _RECOVER)
    if left:
        yield warning(f"abandoned or deleted, and perhaps still in a store: {_listed(left)}", _RECOVER)
    if not expired and not left:
        writing = sum(leases.valid for leases in totals.leases.values())
        leases = f"; {plural(writing, 'lease')} of writers at work, or dead for less than a quarter of an hour"
        yield ok(f"no expired lease of a dead writer{leases if writing else ''}")


def runs(examination: Examination) -> Iterator[Found]:
    """Look for ingest runs whose process on this host has died."""
    dead = examination.totals.dead_runs
    if dead:
        text = f"the processes of these runs have died: {', '.join(f'run {run}' for run in dead)}"
        yield warning(text, "run the same ingest again; it goes on with the files that are missing")
    else:
        yield ok(f"{plural(examination.totals.runs.get('running', 0), 'run')} at work, none of them dead")


def shards(examination: Examination) -> Iterator[Found]:
    """Look for parts of an ingest by many workers that have no worker."""
    totals = examination.totals
    expired = totals.leases["shard"].expired
    if expired:
        remedy = "run the same `cafcat ingest --cluster` again: it goes on with the shards that are left"
        yield warning(f"shards whose worker has died: {expired}", remedy)
    elif totals.shards.get("waiting", 0) and not totals.runs.get("running", 0):
        text = f"shards that wait for a worker, while no run is at work: {totals.shards['waiting']}"
        yield warning(text, "run the same `cafcat ingest --cluster` again, without changes of the command")
    else:
        yield ok(f"{plural(sum(totals.shards.values()), 'shard')} left, none of them without a worker")


def journal(examination: Examination) -> Iterator[Found]:
    """Look for journal records that a store lacks: without them, a rebuild loses the last changes."""
    totals = examination.totals
    if totals.unwritten_since is not None and days_since(totals.unwritten_since) > _LATE_DAYS:
        text = f"journal records that a store lacks: {totals.unwritten_records}"
        yield warning(text, f"{_RECOVER}; if it fails, make the store reachable first")
    elif totals.unwritten_records:
        yield ok(
            f"journal records that a store lacks, for less than a quarter of an hour: {totals.unwritten_records}"
        )
    else:
        yield ok("no journal record waits for a store")


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(plural(count, kind) for kind, count in counts.items())
