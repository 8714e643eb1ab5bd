"""The commands `cafcat backup` and `cafcat restore`: their flags, progress and output."""

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cafcat.cli.call import Call, verb
from cafcat.cli.operation import operation
from cafcat.cli.progress import ShownProgress
from cafcat.errors import InvalidInput
from cafcat.operations.backup.options import BackupOptions
from cafcat.operations.restore.options import RestoreOptions
from cafcat.support.quantities import format_size, plural

if TYPE_CHECKING:
    from cafcat.operations.backup.report import BackupReport
    from cafcat.operations.restore.report import RestoreReport

__all__ = ["register"]


def backup(
    call: Call,
    options: BackupOptions,
    *,
    listed: Annotated[bool, typer.Option("--list", help="List the backups in the store, and write none.")] = False,
) -> int:
    """Write the whole catalog into a store, as one object.

    Example: cafcat backup --keep 7
    """
    if listed and options.keep is not None:
        raise InvalidInput("--list changes nothing and removes no backups: give --keep without --list")
    if listed:
        return _list(call, options.to)
    with operation(call, ShownProgress(call), if_interrupted="no backup was written") as session:
        from cafcat.operations.backup.run import run

        report = run(session, options)
    call.summarize(asdict(report), _written(report))
    return 0


def _list(call: Call, store: str | None) -> int:
    is_empty = True
    with call.repository(makes_catalog=False) as repository:
        for found in repository.backups(store):
            is_empty = False
            line = f"{found.begun_at}  {format_size(found.size_bytes):>10}  {call.output.shown(found.object_key)}"
            call.output.show(found._asdict(), [line])
        if is_empty:
            from cafcat.operations.backup.run import store_of_backups

            url = call.output.shown(store_of_backups(repository.session, store).url)
            call.note(
                f"there are no backups in {url}; `cafcat backup` writes one, `cafcat backup --list --to STORE` "
                "lists those in another store, `cafcat query backups` those of the catalog in all stores"
            )
    return 0


def _written(report: "BackupReport") -> list[str]:
    rows, size = sum(report.rows.values()), format_size(report.size_bytes)
    lines = [f"backed up {plural(rows, 'row')}, {size}, as {report.object_key} in {report.store}"]
    if report.removed:
        lines.append(f"removed {plural(len(report.removed), 'older backup')}")
    return lines


def restore(call: Call, options: RestoreOptions) -> int:
    """Fill an empty catalog from a backup.

    Example: cafcat restore --from s3://bucket/chunks
    """
    with operation(
        call,
        ShownProgress(call),
        if_interrupted="the catalog is empty, as it was before",
        makes_catalog=True,
    ) as session:
        from cafcat.operations.restore.run import run

        report = run(session, options)
    if not call.json and report.newer_records:
        call.output.notice(
            f"the backup lacks {plural(report.newer_records, 'later change')}: "
            "to have every change, run `cafcat rebuild` with an empty catalog instead; "
            "until then, files that were repacked after the backup may be unreadable"
        )
    if not call.json and report.earlier_records:
        call.output.notice(
            f"an earlier restore had lost {plural(report.earlier_records, 'change')} before this backup: "
            "to have them, run `cafcat rebuild` with an empty catalog instead"
        )
    if report.newer_backup_in is not None:
        url = report.newer_backup_in
        command = f"cafcat restore --from {shlex.quote(url)}"
        call.warn(f"{url} has a newer backup: to have it, run `{command}` with an empty catalog instead")
    if report.moved_from is not None:
        call.warn(f"the store {report.moved_from} is at {report.store} now: the catalog reads it from there")
    call.summarize(asdict(report), _restored(report))
    return 0


def _restored(report: "RestoreReport") -> list[str]:
    rows = sum(report.rows.values())
    lines = [f"restored {plural(rows, 'row')} as of {report.taken_at}, from {report.object_key} in {report.store}"]
    if report.chunks_pruned:
        were = "was" if report.chunks_pruned == 1 else "were"
        chunks = plural(report.chunks_pruned, "chunk")
        lines.append(
            f"{chunks} without files {were} pruned after the backup: undelete cannot bring files back from there"
        )
    if report.newer_unknown and not report.newer_records:
        lines.append(
            "there may be later changes: make the stores reachable, then restore again into an empty catalog"
        )
    elif not report.newer_records:
        stores = ", ".join(report.compared) or "any store"
        later = "files in a store that came into use after the backup need a rebuild"
        lines.append(f"no later change in the journal of {stores}; {later}")
    return lines


def register(app: typer.Typer) -> None:
    """Add `cafcat backup` and `restore` to the commands of the program."""
    no_folder = "backup writes the catalog, not your files; `cafcat ingest FOLDER` packs a folder"
    verb(app, "backup", backup, commits=True, measured=True, hints={"": no_folder})
    no_target = "restore fills an empty catalog; `cafcat extract [PREFIX...] -C DIR` copies files to disk"
    hints = dict.fromkeys(("", "--target", "-t"), no_target) | {
        "--list": "`cafcat backup --list` lists the backups"
    }
    verb(app, "restore", restore, commits=True, measured=True, hints=hints)
