"""The command `cafcat repair`: its flags, progress and output."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import typer

from cafcat.cli.call import Call, verb
from cafcat.cli.confirming import DryRun, confirm
from cafcat.cli.custody.copy import not_copied_yet
from cafcat.cli.errors import DAMAGE, INTERRUPTED, SOME_FAILED
from cafcat.cli.operation import operation
from cafcat.cli.progress import ShownProgress
from cafcat.cli.reading.lost import ROWS_BACK
from cafcat.operations.repair.options import RepairOptions
from cafcat.support.quantities import format_size, plural

if TYPE_CHECKING:
    from cafcat.operations.repair.report import RepairReport

__all__ = ["register"]


def repair(call: Call, options: RepairOptions, *, only_show: DryRun = False) -> int:
    """Repair the chunks that verify found damaged.

    The command shows the result first and asks, unless --yes is given. The files with right bytes are packed into
    new chunks: from the chunk itself, its copies, an earlier chunk of moved files, or sources. No chunk is removed.

    Example: cafcat repair --from-copy --from-source /srv/photos
    """
    if not options.dry_run and not only_show:
        return _repair(call, options)[0]
    code, report = _repair(call, replace(options, dry_run=True))
    if report.interrupted or only_show or not _right(report):
        return code
    confirm(call, f"Pack {plural(_right(report), 'file')} into new chunks?")
    return _repair(call, replace(options, dry_run=False))[0]


def _right(report: "RepairReport") -> int:
    """Return the number of files whose right bytes were found."""
    return report.files_kept + report.files_from_copy + report.files_from_former + report.files_from_source


def _repair(call: Call, options: RepairOptions) -> tuple[int, "RepairReport"]:
    """Run the operation, print its summary, and return exit code and report."""
    with operation(
        call,
        ShownProgress(call),
        at_hand="any open chunk",
        if_interrupted="committed chunks stay; everything else is unchanged",
    ) as session:
        from cafcat.operations.repair.run import run

        report = run(session, options)
        has_copies = bool(report.files_lost) and session.catalog.copies.has_any()
    lines = [*_summary(report), *_remedy(report, options, has_copies=has_copies)]
    call.summarize({"summary": asdict(report)}, lines)
    left = report.files_lost or report.chunks_left or report.logs_damaged or report.rows_wrong
    if report.interrupted:
        return INTERRUPTED, report
    return DAMAGE if left else SOME_FAILED if report.stores_out_of_reach else 0, report


def _summary(report: "RepairReport") -> list[str]:
    lines = [("interrupted; " if report.interrupted else "") + _done(report)]
    if report.logs_damaged:
        are = "stays damaged" if report.logs_damaged == 1 else "stay damaged"
        lines.append(f"{plural(report.logs_damaged, 'archive')} of logs {are}")
    if report.rows_wrong:
        lines.append(f"left {plural(report.rows_wrong, 'chunk')} whose rows in the catalog are missing or wrong")
        lines.append(ROWS_BACK)
    if not report.chunks:
        return lines
    former = f"{report.files_from_former} from their earlier chunk, " if report.files_from_former else ""
    lines.append(
        f"files: {report.files_kept} empty or right in their chunk, {report.files_from_copy} from copies, {former}"
        f"{report.files_from_source} from sources, {report.files_lost} lost"
    )
    if report.removed_files_damaged:
        stays = "stays" if report.removed_files_damaged == 1 else "stay"
        lines.append(
            f"{plural(report.removed_files_damaged, 'removed file')} {stays} damaged: "
            "repair works on live files only; after undelete, run it again"
        )
    lines += not_copied_yet(report.copies_in)
    if report.chunks_left:
        lines.append(f"{plural(report.chunks_left, 'chunk')} left: a library or a format is not installed here")
    if report.files_changed:
        lines.append(f"{plural(report.files_changed, 'file')} replaced or removed meanwhile: left as they are now")
    return lines


def _remedy(report: "RepairReport", options: RepairOptions, *, has_copies: bool) -> list[str]:
    """Return the lines that name further places to look for lost files; no line if no file is lost.

    Args:
        report: The report of the operation.
        options: Its options.
        has_copies: True if the catalog has copies of chunks.
    """
    if not report.files_lost:
        return []
    chosen = "".join(f" --chunk {chunk}" for chunk in options.chunks)  # a chunk need not have been verified
    where = "another" if options.sources else "their"
    reads = (
        f"cafcat repair{chosen} --from-source SRC reads them there; give the --prefix of the ingest, if it had one"
    )
    lines = [f"lost files may be at {where} source: {reads}"]
    if options.sources and has_copies and not options.from_copies:
        lines.append("lost files may be in copies of the chunks: --from-copy reads them, too")
    if report.lacking_changes:  # no line about `rm`: it would give up files that a rebuild finds
        restored = (
            f"the catalog was restored from a backup that lacks {plural(report.lacking_changes, 'later change')}"
        )
        rebuild = "cafcat rebuild with an empty catalog finds them"
        return [*lines, f"{restored}: lost files may be in newer chunks, and {rebuild}"]
    verify = f"cafcat verify --level data{chosen}, then " if chosen else ""
    lines.append(
        f"to give up lost files: {verify}cafcat query damaged-files lists them, and cafcat rm removes them; "
        "cafcat ingest packs those that have changed at their source"
    )
    return lines


def _done(report: "RepairReport") -> str:
    if not report.chunks and (report.logs_damaged or report.rows_wrong):
        return "nothing that can be repaired"
    if not report.chunks:
        where = " in the stores within reach" if report.stores_out_of_reach else ""
        return f"nothing to repair: no live file is known to be damaged{where} (cafcat verify looks for damage)"
    repaired = f"{report.chunks_mended} of {plural(report.chunks, 'chunk')}"
    if report.dry_run:
        return f"would repair {repaired}, and pack {plural(_right(report), 'file')} into new chunks"
    written = f"{plural(report.chunks_written, 'new chunk')} ({format_size(report.bytes_written)})"
    if report.chunks_mended < report.chunks:
        return f"repaired {repaired} completely; {plural(_right(report), 'file')} moved into {written}"
    return f"repaired {repaired}, by {written}"


def register(app: typer.Typer) -> None:
    """Add `cafcat repair` to the commands of the program."""
    panels = {
        "Sources": ("sources", "from_copies", "prefix", "follow_symlinks", "unpack_tars"),
        "Writing chunks": ("target_size", "join_store", "store"),
    }
    store = "Store for new chunks: a folder, URL or name."
    verb(app, "repair", repair, store=store, commits=True, measured=True, panels=panels)
