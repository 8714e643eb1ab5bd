"""The numbers of the catalog as metrics for Prometheus."""

from collections.abc import Mapping
from typing import Final

from cafcat.catalog.health.totals import CatalogTotals, ChunkTotals
from cafcat.model import ChunkState, FindingKind, RunState, ShardState, Verdict
from cafcat.support.exposition import Family, Sample, single

__all__ = ["catalog_metrics"]

_OPEN_SHARDS: Final = (ShardState.WAITING, ShardState.RUNNING)
_FAILED: Final = tuple(verdict for verdict in Verdict if verdict is not Verdict.OK)
_NO_CHUNKS: Final = ChunkTotals(0, 0, 0, 0, 0)


def catalog_metrics(totals: CatalogTotals) -> list[Family]:
    """Return the metrics of a catalog. Each state and kind has a sample, also if its number is 0."""
    return [*_chunks(totals), *_runs(totals), *_backlog(totals), *_custody(totals)]


def _chunks(totals: CatalogTotals) -> list[Family]:
    by_state = {state: totals.chunks.get(state, _NO_CHUNKS) for state in ChunkState}
    committed = by_state[ChunkState.COMMITTED]
    return [
        _by("chunks", "Chunks, by state.", "state", {state: found.chunks for state, found in by_state.items()}),
        _by(
            "chunk_bytes",
            "Bytes of the objects of chunks, by state.",
            "state",
            {state: found.size_bytes for state, found in by_state.items()},
        ),
        single("files", "gauge", "Live files.", committed.files),
        single("file_bytes", "gauge", "Bytes of the live files.", committed.file_bytes),
        single(
            "dead_bytes",
            "gauge",
            "Bytes in committed chunks to which no path points any more: repack frees them.",
            committed.dead_bytes,
        ),
        single("catalog_size_bytes", "gauge", "Size of the database.", totals.catalog_bytes),
    ]


def _runs(totals: CatalogTotals) -> list[Family]:
    return [
        _by(
            "runs",
            "Ingests and adoptions, by state.",
            "state",
            {state: totals.runs.get(state, 0) for state in RunState},
        ),
        single(
            "dead_runs", "gauge", "Running ingest runs whose process on this host has died.", len(totals.dead_runs)
        ),
        Family(
            "ingest_files_total",
            "counter",
            "Files of all ingests and adoptions that have ended, by result.",
            _samples("result", totals.run_files),
        ),
        single("ingest_bytes_total", "counter", "Bytes that these runs added and replaced.", totals.run_bytes),
        single("ingest_chunks_total", "counter", "Chunks that these runs committed.", totals.run_chunks),
        single(
            "ingest_last_success_timestamp_seconds",
            "gauge",
            "When the last ingest without a failed file ended. Adoptions do not count.",
            totals.last_run_at,
        ),
    ]


def _backlog(totals: CatalogTotals) -> list[Family]:
    leases = totals.leases
    return [
        _by(
            "open_leases",
            "Writers at work: leases of chunks, copies, backups and shards that have not expired.",
            "kind",
            {kind: found.valid for kind, found in leases.items()},
        ),
        _by(
            "expired_leases",
            "Leases of dead writers: recover, or the next ingest, ends them.",
            "kind",
            {kind: found.expired for kind, found in leases.items()},
        ),
        _by("unremoved_objects", "Abandoned or deleted objects that may be in a store.", "kind", totals.left),
        _by(
            "open_shards",
            "Shards that are waiting or running.",
            "state",
            {state: totals.shards.get(state, 0) for state in _OPEN_SHARDS},
        ),
        single(
            "journal_unwritten_records",
            "gauge",
            "Journal records that a store lacks.",
            totals.unwritten_records,
        ),
        single(
            "journal_oldest_unwritten_timestamp_seconds",
            "gauge",
            "When the oldest of these records was made; missing if there is none.",
            totals.unwritten_since,
        ),
        single(
            "chunks_without_copy",
            "gauge",
            "Committed chunks that have no second copy, without adopted archives.",
            totals.without_copy,
        ),
    ]


def _custody(totals: CatalogTotals) -> list[Family]:
    return [
        single(
            "chunks_never_verified",
            "gauge",
            "Committed chunks never verified at level data.",
            totals.never_verified,
        ),
        single(
            "oldest_unverified_timestamp_seconds",
            "gauge",
            "When the oldest chunk never verified at level data was committed; missing if there is none.",
            totals.never_verified_since,
        ),
        single(
            "oldest_verification_timestamp_seconds",
            "gauge",
            "When the chunk whose last verification at level data is the oldest was verified; missing if none was.",
            totals.verified_since,
        ),
        _by(
            "unsound_chunks",
            "Chunks whose failed verification no later one refutes, by verdict; unneeded: no live file is damaged.",
            "verdict",
            {verdict: totals.verdicts.get(verdict, 0) for verdict in (*_FAILED, "unneeded")},
        ),
        _by(
            "unsound_copies",
            "Copies of chunks with live files whose last verification failed, by verdict.",
            "verdict",
            {verdict: totals.copy_verdicts.get(verdict, 0) for verdict in _FAILED},
        ),
        _by(
            "open_findings",
            "Findings of the failed verifications of chunks, by kind.",
            "kind",
            {kind: totals.findings.get(kind, 0) for kind in FindingKind},
        ),
        single(
            "backup_timestamp_seconds",
            "gauge",
            "When the last backup of the catalog was made; missing if there is none.",
            totals.backup_at,
        ),
        single("backup_size_bytes", "gauge", "Size of the last backup.", totals.backup_bytes),
        single(
            "changes_since_backup",
            "gauge",
            "Changes of the catalog since the last backup, up to 100,000.",
            totals.changes_since_backup,
        ),
    ]


def _by(name: str, help: str, label: str, values: Mapping[str, float]) -> Family:
    return Family(name, "gauge", help, _samples(label, values))


def _samples(label: str, values: Mapping[str, float]) -> tuple[Sample, ...]:
    return tuple(Sample(value, {label: str(name)}) for name, value in values.items())
