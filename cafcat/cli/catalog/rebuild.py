"""The commands `cafcat rebuild` and `cafcat compare`: their flags, progress and output."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cafcat.cli.call import Call, verb
from cafcat.cli.clusters import Cluster, executor_of
from cafcat.cli.errors import DAMAGE
from cafcat.cli.operation import operation
from cafcat.cli.progress import ShownProgress
from cafcat.events import CatalogsDiffer, Event
from cafcat.operations.compare.options import CompareOptions
from cafcat.operations.rebuild.options import RebuildOptions
from cafcat.support.quantities import format_size, plural

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from cafcat.operations.compare.report import CompareReport
    from cafcat.operations.rebuild.damage import Damage
    from cafcat.operations.rebuild.report import RebuildReport

__all__ = ["register"]

_OF_LOGS: Final = frozenset({"ingestion_units", "chunk_times"})
"""Tables that only catalogs with archives of logs use. `cafcat compare` leaves them out if they are empty."""

_LISTED = 100
"""Number of damages, and of chunks without a journal record, that are printed. With -v, all that the report lists
are printed; with --json, none."""


def rebuild(call: Call, options: RebuildOptions, *, cluster: Cluster = None) -> int:
    """Fill an empty catalog from the stores. Use it after the database was lost.

    Example: cafcat rebuild s3://bucket/chunks /mnt/copies
    """
    with (
        executor_of(cluster, share_password=options.share_password) as executor,
        operation(
            call,
            ShownProgress(call),
            if_interrupted="the catalog is empty, as it was before",
            makes_catalog=True,
        ) as session,
    ):
        from cafcat.operations.rebuild.run import run

        report = run(session, replace(options, executor=executor))
    if not call.json:
        _notices(call, report)
    call.summarize({"summary": _document(report)}, _summary(report))
    return DAMAGE if report.damage_count else 0


def _notices(call: Call, report: "RebuildReport") -> None:
    listed = len(report.damages) if call.verbose else _LISTED
    for damage in report.damages[:listed]:
        call.output.notice(_in_words(damage))
    if (hidden := report.damage_count - len(report.damages[:listed])) > 0:
        call.output.notice(f"{plural(hidden, 'more damage')} not listed")
    if report.adopted and report.written:
        call.output.notice(
            f"chunks without a journal record, entered as the newest: {_listed(call, report.adopted)}"
        )
    if report.left_out and report.written:
        stores = ", ".join(report.stores_with_copies)
        unless = f", unless a rebuild that also names {stores} finds a copy" if stores else ""
        call.output.notice(
            "chunks without live files, whose objects are damaged or missing, are left out: "
            f"{_listed(call, report.left_out)}; damaged objects stay in their stores, and you can delete them; if "
            f"one had removed files, `undelete` cannot bring them back{unless}"
        )
    if report.stores_with_copies and report.written:
        stores = ", ".join(report.stores_with_copies)
        call.output.notice(
            f"the lost catalog had copies in {stores}: this catalog does not have them, because the store was not "
            "named; `cafcat copy --all --to STORE` enters those of the chunks of this catalog"
        )
    if report.unclaimed and report.written:
        call.output.notice(
            "chunks without a journal record, left alone because they may belong to any catalog: "
            f"{_listed(call, report.unclaimed)}; to read one, run `cafcat adopt` on its object"
        )


def _listed(call: Call, chunks: "Sequence[UUID]") -> str:
    named = [str(uuid) for uuid in chunks[: None if call.verbose else _LISTED]]
    hidden = len(chunks) - len(named)
    return ", ".join(named) + (f" and {hidden} more" if hidden else "")


def _in_words(damage: "Damage") -> str:
    files = f" ({plural(damage.files, 'file')})" if damage.files is not None else ""
    spare = "" if damage.lost else "; nothing is lost, because another object has the same contents"
    return f"{damage.kind} {damage.name}{files}: {damage.message}{spare}"


def _document(report: "RebuildReport") -> dict[str, Any]:
    return asdict(report) | {"damages": [damage._asdict() for damage in report.damages]}


def _summary(report: "RebuildReport") -> list[str]:
    problems = plural(report.lost_count, "problem")
    if not report.written:
        return [
            f"nothing was written: files may be lost by {problems}; name all stores that the catalog had, "
            "or accept the loss with --accept-loss"
        ]
    lines = [
        f"rebuilt {plural(report.chunks, 'chunk')}: {plural(report.files, 'file')}, {format_size(report.bytes)}; "
        f"{plural(report.retired_files, 'earlier location')}, {plural(report.journal_records, 'journal record')}"
    ]
    if report.copies:
        lines.append("1 chunk has a copy" if report.copies == 1 else f"{report.copies} copies of chunks")
    if report.lost_count:
        lines.append(
            f"{problems} accepted: the newest versions of some files may be missing, or replaced by older ones"
        )
    if report.files_lost:
        lines.append(f"{plural(report.files_lost, 'file')} lost that undelete had restored")
    if report.foreign_objects:
        lines.append(f"left alone, because cafcat did not write them: {plural(report.foreign_objects, 'object')}")
    return lines


def compare(
    call: Call,
    options: CompareOptions,
    *,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=0, help="Number of differences to show. All are counted.")
    ] = 20,
) -> int:
    """Compare this catalog with another catalog. The exit code is 5 if files, chunks or removals differ.

    Chunks that were deleted, and former files in them, are left out.

    Example: cafcat compare postgresql://host/rebuilt
    """
    with operation(call, _Differences(call, limit), if_interrupted="nothing was changed") as session:
        from cafcat.operations.compare.run import run

        report = run(session, options)
    document = {"rows": report.rows, "differences": report.differences, "equal": report.equal}
    call.summarize({"summary": document}, _compared(report))
    return 0 if report.equal else DAMAGE


class _Differences(ShownProgress):
    """Progress of `cafcat compare`. Prints the first `limit` differences between the two catalogs on stdout."""

    def __init__(self, call: Call, limit: int) -> None:
        super().__init__(call)
        self._left = limit

    def show(self, event: Event) -> None:
        if not isinstance(event, CatalogsDiffer):
            return
        if self._left <= 0 or (self._call.quiet and not self._call.json):
            return
        self._left -= 1
        self.end()
        self._call.output.show({"difference": event._asdict()}, [self._line(event)])

    def _line(self, difference: CatalogsDiffer) -> str:
        table, name, ours, theirs = difference
        if ours is None or theirs is None:
            what = "only there" if ours is None else "only here"
        else:
            changed = [key for key in ours if ours[key] != theirs[key]]
            what = ", ".join(f"{key} {ours[key]} here, {theirs[key]} there" for key in changed)
        return f"{table}  {self._call.output.shown(name)}: {what}"


def _compared(report: "CompareReport") -> list[str]:
    shown = {table: count for table, count in report.rows.items() if count or table not in _OF_LOGS}
    rows = ", ".join(f"{count} of {table}" for table, count in shown.items())
    if report.equal:
        return [f"no difference: {rows}"]
    found = ", ".join(f"{count} of {table}" for table, count in report.differences.items() if count)
    return [f"{plural(sum(report.differences.values()), 'difference')}: {found}; the same: {rows}"]


def register(app: typer.Typer) -> None:
    """Add `cafcat rebuild` and `compare` to the commands of the program."""
    verb(app, "rebuild", rebuild, commits=True, measured=True)
    verb(app, "compare", compare)
