"""The shards of ingests by many workers: parts of sources, which workers take under leases."""

import json
import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from psycopg.types.json import Jsonb

from cafcat.catalog.chunks.owners import is_dead
from cafcat.catalog.connection import Connection, PgConnection
from cafcat.catalog.history.runs import iso
from cafcat.model import RunTotals, ShardState, ShardSummary

__all__ = ["MOST_ATTEMPTS", "CutSource", "NewShard", "Shard", "Shards", "Situation"]

MOST_ATTEMPTS: Final = 5
"""How many times workers take a shard before the ingest gives it up."""
_OPEN: Final = "state IN ('waiting', 'running')"
# A waiting shard, or one whose worker has lost its lease.
_FREE: Final = "(state = 'waiting' OR (state = 'running' AND lease_expires_at < now()))"
_LOCK_PLANS: Final = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
_TAKE: Final = f"""
WITH free AS (
    SELECT id, owner FROM shards
    WHERE run_id = %(run)s AND {_FREE} AND attempts < %(attempts)s
    ORDER BY id <> %(first)s, id LIMIT 1 FOR UPDATE SKIP LOCKED
)
UPDATE shards SET state = 'running', owner = %(owner)s, host = %(host)s, attempts = attempts + 1, error = NULL,
    progress = NULL, begun_at = coalesce(begun_at, now()),
    lease_expires_at = now() + make_interval(secs => %(lease)s)
FROM free WHERE shards.id = free.id
RETURNING shards.id, source_number, after_position, through_position, position, report, free.owner
"""  # noqa: S608
# The chunk that a lost worker was writing is recovered at once, not only when the lease of the chunk ends.
_EXPIRE_CHUNKS: Final = "UPDATE chunks SET lease_expires_at = now() WHERE state = 'writing' AND lease_owner = %s"
_EXPIRE_DEAD: Final = "UPDATE shards SET lease_expires_at = now() WHERE owner = %s AND state = 'running'"
_RENEW: Final = """
UPDATE shards SET lease_expires_at = now() + make_interval(secs => %(lease)s), progress = n.value
FROM json_each(%(progress)s::json) AS p(key, value), to_jsonb(p.value) AS n(value)
WHERE id = p.key::bigint AND owner = %(owner)s AND state = 'running'
RETURNING id
"""
_FILES: Final = "coalesce((report->>'files')::bigint, 0) + coalesce((progress->>'files')::bigint, 0)"
_BYTES: Final = "coalesce((report->>'bytes')::bigint, 0) + coalesce((progress->>'bytes')::bigint, 0)"
_SUMMARY: Final = f"""
SELECT id, state, source, after_position, through_position, position, attempts, host, error, {_FILES}, {_BYTES},
       {iso("begun_at")}, {iso("finished_at")}
FROM shards WHERE run_id = %s ORDER BY id
"""  # noqa: S608
_SITUATION: Final = f"""
SELECT count(*) FILTER (WHERE {_FREE} AND attempts < %(attempts)s),
       count(*) FILTER (WHERE state = 'running' AND lease_expires_at >= now()),
       count(*) FILTER (WHERE {_FREE} AND attempts >= %(attempts)s),
       (SELECT request FROM ingest_runs WHERE id = %(run)s)
FROM shards WHERE run_id = %(run)s AND {_OPEN}
"""  # noqa: S608
_HANDLED: Final = f"""
SELECT coalesce(sum({_FILES}), 0)::bigint, coalesce(sum({_BYTES}), 0)::bigint FROM shards WHERE run_id = %s
"""  # noqa: S608
# An event of a commit has the text "1 added, 2 replaced, 3 skipped, 4 live_bytes".
_TOTALS: Final = """
WITH counted AS (
    SELECT key, sum(value::bigint) AS n FROM shards, jsonb_each_text(report) WHERE run_id = %(run)s GROUP BY key
), committed AS (
    SELECT regexp_matches(detail, '(\\d+) added, (\\d+) replaced, (\\d+) skipped, (\\d+) live_bytes') AS n
    FROM events WHERE run_id = %(run)s AND kind = 'chunk_committed'
)
SELECT coalesce((SELECT jsonb_object_agg(key, n) FROM counted), '{}'), count(*),
       coalesce(sum(n[1]::bigint), 0)::bigint, coalesce(sum(n[2]::bigint), 0)::bigint,
       coalesce(sum(n[3]::bigint), 0)::bigint, coalesce(sum(n[4]::bigint), 0)::bigint
FROM committed
"""


_ADOPT: Final = f"""
WITH open AS (SELECT id, run_id FROM shards WHERE source = %s AND scope = %s AND {_OPEN} FOR UPDATE)
UPDATE shards SET run_id = %s, source_number = %s, attempts = 0, report = '{{}}'
FROM open WHERE shards.id = open.id RETURNING open.run_id
"""  # noqa: S608
_PACKED_SINCE: Final = """
SELECT coalesce(sum(n[1]::bigint + n[2]::bigint), 0)::bigint FROM (
    SELECT regexp_matches(detail, '(\\d+) added, (\\d+) replaced') AS n FROM events
    WHERE run_id = ANY(%s) AND kind = 'chunk_committed' AND id > %s
) AS committed
"""


class CutSource(NamedTuple):
    """A source that is cut into shards.

    Attributes:
        source: The source: a URL or an absolute path.
        scope: All other values on which the shards depend.
        number: Position of the source in the list of the ingest's sources.
    """

    source: str
    scope: str
    number: int


class NewShard(NamedTuple):
    """A shard that is to be inserted.

    Attributes:
        after: The shard begins after this position; None for the beginning of the source.
        through: The shard ends with this position; None for the end of the source.
    """

    after: str | None
    through: str | None


class Shard(NamedTuple):
    """A shard that a worker has taken.

    Attributes:
        id: shards.id.
        source_number: Position of the source in the list of the ingest's sources.
        after: The shard begins after this position; None for the beginning of the source.
        through: The shard ends with this position; None for the end of the source.
        position: All files up to this position were dealt with; None if none was.
        report: Counts of these files.
        was_lost: True if another worker had the shard and lost it.
    """

    id: int
    source_number: int
    after: str | None
    through: str | None
    position: str | None
    report: Mapping[str, int]
    was_lost: bool


class Situation(NamedTuple):
    """The open shards of a run.

    Attributes:
        free: Number of shards that a worker can take.
        running: Number of shards that workers with a valid lease have.
        given_up: Number of shards that failed too often.
        request: What the workers are asked to do: "stop" or "abort"; None to go on.
    """

    free: int
    running: int
    given_up: int
    request: str | None


class Shards:
    """Queries on the rows of `shards`. Every method is one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def adopt(self, cut: CutSource, run_id: int) -> list[int]:
        """Assign the open shards of a source, which an earlier run left, to a new run.

        Args:
            cut: The source.
            run_id: ingest_runs.id of the new run.

        Returns:
            ingest_runs.id of the earlier run of each of these shards.
        """
        parameters = (cut.source, cut.scope, run_id, cut.number)
        with self._connection.statement() as connection:
            return [row[0] for row in connection.execute(_ADOPT.encode(), parameters).fetchall()]

    def cancel(self, cut: CutSource) -> None:
        """Cancel the open shards of a source, so that it is cut anew."""
        statement = (
            "UPDATE shards SET state = 'cancelled', owner = NULL, lease_expires_at = NULL "  # noqa: S608
            f"WHERE source = %s AND scope = %s AND {_OPEN}"
        )
        with self._connection.statement() as connection:
            connection.execute(statement.encode(), (cut.source, cut.scope))

    def add(self, cut: CutSource, run_id: int, shards: Sequence[NewShard]) -> None:
        """Insert the shards of a source, all or none.

        If another run inserted shards of the same source and scope meanwhile, these are assigned to this run
        instead.

        Args:
            cut: The source.
            run_id: ingest_runs.id.
            shards: The shards, in the order in which workers take them.
        """
        with self._connection.transaction() as connection:
            connection.execute(_LOCK_PLANS, [f"cafcat shards {cut.source} {cut.scope}"])
            if not self.adopt(cut, run_id):
                _insert(connection, cut, run_id, shards)

    def divide(self, shard: Shard, owner: str, parts: Sequence[NewShard]) -> bool:
        """Let a running shard end earlier, and insert shards for the rest of it.

        Args:
            shard: The shard.
            owner: The worker that has it.
            parts: First the new range of the shard itself, then those of the new shards.

        Returns:
            False if the worker has lost the shard. Then nothing has changed.
        """
        shrink = (
            "UPDATE shards SET through_position = %s WHERE id = %s AND owner = %s AND state = 'running' "
            "RETURNING source, scope, run_id"
        )
        with self._connection.transaction() as connection:
            row = connection.execute(shrink, (parts[0].through, shard.id, owner)).fetchone()
            if row is None:
                return False
            source, scope, run_id = row
            _insert(connection, CutSource(source, scope, shard.source_number), run_id, parts[1:])
        return True

    def take(self, run_id: int, first: int, owner: str, lease_seconds: int) -> Shard | None:
        """Take a free shard of a run under a lease.

        The lease of the chunk that a lost worker was writing is ended, so that `recover` can deal with the chunk.

        Args:
            run_id: ingest_runs.id.
            first: shards.id of the shard to take if it is free. Otherwise the one with the lowest id is taken.
            owner: Name of the worker (`owner_name`).
            lease_seconds: Length of the lease.

        Returns:
            The shard; None if no shard is free.
        """
        parameters = {
            "run": run_id,
            "first": first,
            "owner": owner,
            "host": socket.gethostname(),
            "lease": lease_seconds,
            "attempts": MOST_ATTEMPTS,
        }
        with self._connection.transaction() as connection:
            row = connection.execute(_TAKE.encode(), parameters).fetchone()
            if row is None:
                return None
            *values, lost = row
            if lost is not None:
                connection.execute(_EXPIRE_CHUNKS, [lost])
        return Shard._make((*values, lost is not None))

    def expire_dead(self, run_id: int) -> None:
        """End the leases of workers of a run that certainly do not exist any more, because they ran here."""
        statement = (
            "SELECT DISTINCT owner FROM shards WHERE run_id = %s AND state = 'running' AND owner IS NOT NULL"
        )
        with self._connection.transaction() as connection:
            for (owner,) in connection.execute(statement, [run_id]).fetchall():
                if is_dead(owner):
                    connection.execute(_EXPIRE_DEAD, [owner])

    def renew(
        self, run_id: int, owner: str, lease_seconds: int, progress: Mapping[int, Mapping[str, int]]
    ) -> tuple[set[int], str | None]:
        """Extend the leases of a worker's shards, and record its progress.

        Args:
            run_id: ingest_runs.id.
            owner: The worker.
            lease_seconds: New length of the leases.
            progress: Files and bytes that were handled after the position of each shard, by shards.id.

        Returns:
            The shards that the worker still has; and the request to the workers of the run, None for none.
        """
        parameters = {"lease": lease_seconds, "owner": owner, "progress": json.dumps(progress)}
        with self._connection.transaction() as connection:
            kept = {row[0] for row in connection.execute(_RENEW.encode(), parameters).fetchall()}
            row = connection.execute("SELECT request FROM ingest_runs WHERE id = %s", [run_id]).fetchone()
        return kept, None if row is None else row[0]

    def advance(self, shard_id: int, owner: str, position: str, report: Mapping[str, int]) -> None:
        """Record that all files of a shard up to a position were dealt with, unless the worker has lost the shard.

        Args:
            shard_id: shards.id.
            owner: The worker.
            position: The position.
            report: Counts of the files up to there.
        """
        statement = (
            "UPDATE shards SET position = %s, report = %s, progress = NULL WHERE id = %s AND owner = %s "
            "AND state = 'running'"
        )
        with self._connection.statement() as connection:
            connection.execute(statement, (position, Jsonb(dict(report)), shard_id, owner))

    def finish(self, shard_id: int, owner: str, report: Mapping[str, int]) -> None:
        """Record that all files of a shard were dealt with, unless the worker has lost the shard.

        Args:
            shard_id: shards.id.
            owner: The worker.
            report: Counts of the files of the shard.
        """
        statement = (
            "UPDATE shards SET state = 'finished', finished_at = now(), report = %s, progress = NULL, "
            "owner = NULL, lease_expires_at = NULL WHERE id = %s AND owner = %s AND state = 'running'"
        )
        with self._connection.statement() as connection:
            connection.execute(statement, (Jsonb(dict(report)), shard_id, owner))

    def release(self, shard_ids: Iterable[int], owner: str, error: str | None, *, counts: bool = True) -> None:
        """Give shards back, so that other workers can take them. Shards that the worker has lost stay as they are.

        Args:
            shard_ids: shards.id of each.
            owner: The worker.
            error: Why the worker failed; None if it was asked to end.
            counts: False if the attempt is not counted.
        """
        statement = (
            "UPDATE shards SET state = 'waiting', owner = NULL, lease_expires_at = NULL, progress = NULL, "
            "error = %s, attempts = attempts - %s WHERE id = ANY(%s) AND owner = %s AND state = 'running'"
        )
        with self._connection.statement() as connection:
            connection.execute(statement, (error, 0 if counts else 1, list(shard_ids), owner))

    def request(self, run_id: int, request: str) -> bool:
        """Ask the workers of a running ingest to stop or abort.

        Returns:
            False if the run does not exist, or has ended.
        """
        statement = "UPDATE ingest_runs SET request = %s WHERE id = %s AND state = 'running'"
        with self._connection.statement() as connection:
            return connection.execute(statement, (request, run_id)).rowcount == 1

    def free(self, run_id: int, limit: int) -> list[int]:
        """Return shards.id of free shards of a run, the lowest first, at most `limit` of them."""
        statement = f"SELECT id FROM shards WHERE run_id = %s AND {_FREE} AND attempts < %s ORDER BY id LIMIT %s"  # noqa: S608
        with self._connection.statement() as connection:
            rows = connection.execute(statement.encode(), (run_id, MOST_ATTEMPTS, limit)).fetchall()
        return [row[0] for row in rows]

    def situation(self, run_id: int) -> Situation:
        """Return how many open shards of a run are free, running or given up, and the request to its workers."""
        with self._connection.statement() as connection:
            [row] = connection.execute(_SITUATION.encode(), {"run": run_id, "attempts": MOST_ATTEMPTS}).fetchall()
        return Situation(*row)

    def handled(self, run_id: int) -> tuple[int, int]:
        """Return the number of files and of bytes that the workers of a run have handled so far."""
        with self._connection.statement() as connection:
            [row] = connection.execute(_HANDLED.encode(), [run_id]).fetchall()
        return int(row[0]), int(row[1])

    def committed_chunks(self, run_id: int) -> list[tuple[str, int, int]]:
        """Return UUID, number of files, and size in bytes of each chunk that a run committed in the last hour."""
        statement = (
            "SELECT uuid::text, file_count, size_bytes FROM chunks "
            "WHERE run_id = %s AND committed_at > now() - interval '1 hour' ORDER BY committed_at"
        )
        with self._connection.statement() as connection:
            return [(row[0], row[1], row[2]) for row in connection.execute(statement, [run_id]).fetchall()]

    def totals(self, run_id: int) -> RunTotals:
        """Return the counts of a run with shards: those of its shards, and of its committed chunks."""
        with self._connection.statement() as connection:
            [row] = connection.execute(_TOTALS.encode(), {"run": run_id}).fetchall()
        return RunTotals(*row)

    def last_event(self) -> int:
        """Return the highest events.id; 0 if there is no event."""
        with self._connection.statement() as connection:
            [(event_id,)] = connection.execute("SELECT coalesce(max(id), 0) FROM events").fetchall()
        return int(event_id)

    def packed_since(self, event_id: int, run_ids: Iterable[int]) -> int:
        """Return the number of files that workers of some runs have added and replaced after an event.

        Args:
            event_id: events.id.
            run_ids: ingest_runs.id of the runs.
        """
        with self._connection.statement() as connection:
            [(files,)] = connection.execute(_PACKED_SINCE, (list(run_ids), event_id)).fetchall()
        return int(files)

    def errors(self, run_id: int) -> list[str]:
        """Return the errors of the open shards of a run, each once, at most ten."""
        statement = (
            f"SELECT DISTINCT error FROM shards WHERE run_id = %s AND {_OPEN} AND error IS NOT NULL LIMIT 10"  # noqa: S608
        )
        with self._connection.statement() as connection:
            return [row[0] for row in connection.execute(statement.encode(), [run_id]).fetchall()]

    def summaries(self, run_id: int) -> list[ShardSummary]:
        """Return the shards of a run, in the order in which workers take them."""
        with self._connection.statement() as connection:
            rows = connection.execute(_SUMMARY.encode(), [run_id]).fetchall()
        return [ShardSummary(row[0], ShardState(row[1]), *row[2:]) for row in rows]


def _insert(connection: PgConnection, cut: CutSource, run_id: int, shards: Sequence[NewShard]) -> None:
    statement = (
        "INSERT INTO shards (run_id, source_number, source, scope, after_position, through_position) "
        "VALUES (%s, %s, %s, %s, %s, %s)"
    )
    rows = [(run_id, cut.number, cut.source, cut.scope, shard.after, shard.through) for shard in shards]
    connection.cursor().executemany(statement, rows)
