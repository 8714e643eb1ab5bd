"""The commands of `cafcat store`, for the folders and buckets that the catalog refers to."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cafcat.cli.call import Call, group, verb
from cafcat.cli.clusters import Cluster, SharePassword, executor_of
from cafcat.cli.confirming import confirm
from cafcat.cli.errors import INTERRUPTED, SOME_FAILED
from cafcat.cli.operation import operation
from cafcat.cli.options import JoinStore
from cafcat.cli.progress import ShownProgress
from cafcat.errors import InvalidInput
from cafcat.events import ChunkMigrated, Event
from cafcat.stores.registry import open_store
from cafcat.support.arguments import parse_text
from cafcat.support.quantities import format_size, plural

if TYPE_CHECKING:
    from cafcat.catalog.stores.stores import StoreRow
    from cafcat.operations.stores.lose import StoreLossReport
    from cafcat.operations.stores.migrate import MigrateReport
    from cafcat.session import Session
    from cafcat.stores.probing import Finding

__all__ = ["register"]

_OLD = typer.Argument(metavar="STORE", parser=parse_text, help="Store of the catalog: its name, URL or folder.")
_NEW = typer.Argument(metavar="NEW", parser=parse_text, help="New place of the store: a folder, URL or name.")
_NAME = typer.Argument(metavar="NAME", parser=parse_text, help="Short name, such as archive or disk-2.")

_NOTHING_NOW: Final = "nothing now"
_WORDS: Final = {True: "yes", False: "no", None: "not tried"}


class _Progress(ShownProgress):
    """Progress of `cafcat store migrate`. With -v, prints each migrated chunk: on stderr, with --json on stdout."""

    def show(self, event: Event) -> None:
        if not isinstance(event, ChunkMigrated):
            return
        chunk = event
        if self._call.verbose and self._call.json:
            self._call.output.document(chunk._asdict())
        elif self._call.verbose:
            self._print(f"chunk {chunk.uuid} migrated, {format_size(chunk.size_bytes)}")


def ls(call: Call) -> None:
    """List the stores of the catalog, with the numbers of their objects.

    Stores without a name that have no objects any more are only listed with -v or --json.

    Example: cafcat store ls
    """
    with call.repository(makes_catalog=False) as repository:
        for store in repository.stores():
            if call.json or call.verbose or store.name is not None or _counts(store) != _NOTHING_NOW:
                call.output.show(store._asdict(), [call.output.shown(_row(store))])


def _row(store: "StoreRow") -> str:
    home = "  (moves with the home)" if store.moves_with_home else ""
    return f"{store.name or '-':12}  {store.url}  {_counts(store)}{home}"


def _counts(store: "StoreRow") -> str:
    counts = (
        (store.chunks, f"{plural(store.chunks, 'chunk')} ({format_size(store.size_bytes)})"),
        (store.adopted, plural(store.adopted, "adopted archive")),
        (store.copies, f"{plural(store.copies, 'copy')} ({format_size(store.copy_bytes)})"),
        (store.retired, f"{store.retired} left by a migration"),
        (store.backups, plural(store.backups, "backup")),
    )
    nothing = _NOTHING_NOW if store.was_used else "nothing yet"
    return ", ".join(text for count, text in counts if count) or nothing


def add(
    call: Call,
    *,
    name: Annotated[str, _NAME],
    url: Annotated[
        str, typer.Argument(metavar="URL", parser=parse_text, help="Folder or URL, such as s3://BUCKET/PREFIX.")
    ],
) -> None:
    """Give a store a name in the catalog.

    Example: cafcat store add disk-2 /mnt/disk-2/chunks
    """
    with call.repository() as repository:
        store = repository.add_store(name, url)
        if open_store(store.url).is_remote and not repository.check_store(store.url).is_usable:
            server = f"the server of {store.url} lacks features that cafcat needs"
            call.warn(f"{server}: `cafcat store check {name}` shows which")
    call.summarize(store._asdict(), [call.output.shown(f"the store {store.name} is at {store.url}")])


def rename(call: Call, *, old: Annotated[str, _OLD], name: Annotated[str, _NAME]) -> None:
    """Give a store of the catalog another name.

    Example: cafcat store rename old new
    """
    with call.repository() as repository:
        configured = repository.configured_name(old)
        renamed = repository.rename_store(old, name)
    if configured not in (None, name):
        call.warn(f"the setting store still has the value {configured}: change it to {name}")
    call.summarize(renamed._asdict(), [call.output.shown(f"the store {renamed.name} is at {renamed.url}")])


def rm(
    call: Call,
    *,
    old: Annotated[str, _OLD],
    lost: Annotated[bool, typer.Option("--lost", help="Give up a store whose objects are lost for good.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Give up the lost store without a question.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the losses that --lost would accept.")
    ] = False,
) -> None:
    """Remove an unused store from the catalog, whose objects stay; or give up a lost store (--lost).

    Chunks of a lost store are read from their copies in other stores from then on. Files without a copy are removed
    from the catalog. The command shows their number and asks, unless --yes is given.

    Example: cafcat store rm old
    """
    if lost:
        _give_up(call, old, yes=yes, dry_run=dry_run)
        return
    if yes or dry_run:
        raise InvalidInput("--yes and --dry-run are for --lost only", hint="leave them out, or add --lost")
    with call.repository() as repository:
        configured = repository.configured_name(old)
        removed = repository.remove_store(old)
        row_stays = any(store.id == removed.id for store in repository.stores())
        if configured is None:
            _warn_of_configuration(call, repository.session, removed.url)
        else:
            call.warn(f"the setting store still has the value {configured}: change it")
    line = f"removed {removed.url} from the catalog"
    if row_stays:
        line = f"removed the name {removed.name}; the history of deleted objects refers to {removed.url}"
    call.summarize(removed._asdict(), [call.output.shown(line)])


def _give_up(call: Call, store: str, *, yes: bool, dry_run: bool) -> None:
    with call.repository() as repository:
        if not yes:
            report = repository.lose_store(store, dry_run=True)
            call.output.show(asdict(report), [call.output.shown(_shown_loss(report))])
            if dry_run:
                return
            confirm(call, f"Give up the store and {plural(report.files_lost, 'file')}?")
        report = repository.lose_store(store)
        _warn_of_configuration(call, repository.session, report.store)
    call.summarize(asdict(report), [call.output.shown(_shown_loss(report))])


def _shown_loss(report: "StoreLossReport") -> str:
    lost = f"{plural(report.chunks_lost, 'chunk')} with {plural(report.files_lost, 'file')}"
    further = (
        (report.removed_files_lost, plural(report.removed_files_lost, "removed file")),
        (report.old_versions_lost, plural(report.old_versions_lost, "older version")),
    )
    also = "".join(f", {text}" for count, text in further if count)
    back = plural(report.files_moved_back, "file")
    parts = [
        f"{'would give up' if report.dry_run else 'gave up'} {report.store}: lost {lost}"
        f" ({format_size(report.bytes_lost)}){also}",
        *([f"{back} read from chunks that had them before"] if report.files_moved_back else []),
        f"{plural(report.chunks_kept, 'chunk')} read from copies"
        + (f", {report.chunks_damaged} of them damaged: run cafcat repair" if report.chunks_damaged else ""),
        f"lost {report.copies_lost} {'copy' if report.copies_lost == 1 else 'copies'}"
        f" and {plural(report.backups_lost, 'backup')}",
    ]
    return "; ".join(parts)


def move(
    call: Call,
    *,
    old: Annotated[str, _OLD],
    new: Annotated[str, _NEW],
    look_at_all: Annotated[
        bool, typer.Option("--all", help="Look for all objects at the new place, not only for a hundred.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Look for the objects, but change nothing.")] = False,
) -> None:
    """Change the URL of a store in the catalog, after you moved its objects to the new URL.

    Example: cafcat store move /mnt/old/chunks /mnt/new/chunks
    """
    with call.repository() as repository:
        report = repository.move_store(old, new, look_at_all=look_at_all, dry_run=dry_run)
        if not dry_run:
            _warn_of_configuration(call, repository.session, report.old)
    if report.dropped_name is not None:
        call.warn(f"no store has the name {report.dropped_name} any more: the moved store keeps its own name")
    done = "would move" if dry_run else "moved"
    looked = f"found all of {report.looked_at} that were looked for"
    line = f"{done} {report.old} to {report.new}: {plural(report.objects, 'object')}, {looked}"
    call.summarize(asdict(report), [call.output.shown(line)])


def migrate(
    call: Call,
    *,
    old: Annotated[str, _OLD],
    new: Annotated[str, _NEW],
    join_store: JoinStore = False,
    cluster: Cluster = None,
    share_password: SharePassword = False,
) -> int:
    """Copy all chunks, copies and backups of a store to another store, which the catalog then uses.

    Each copied object is verified. Adopted archives stay in the old store.

    Example: cafcat store migrate /mnt/disk/chunks s3://bucket/chunks
    """
    with (
        executor_of(cluster, share_password=share_password) as executor,
        operation(
            call,
            _Progress(call),
            at_hand="any open copy",
            if_interrupted="migrated objects stay in the new store; run the same migrate again to continue",
        ) as session,
    ):
        from cafcat.operations.stores.migrate import migrate_store

        report = migrate_store(
            session, old, new, join_store=join_store, share_password=share_password, executor=executor
        )
        _warn_of_configuration(call, session, report.old)
    call.summarize({"summary": asdict(report)}, map(call.output.shown, _summary(report)), report.failed)
    return INTERRUPTED if report.interrupted else SOME_FAILED if report.failed else 0


def _summary(report: "MigrateReport") -> list[str]:
    first = "interrupted; " if report.interrupted else ""
    if not (report.chunks or report.backups or report.left or report.failed or report.interrupted):
        return [f"nothing to migrate from {report.old}"]
    chunks = f"{plural(report.chunks, 'chunk')} ({format_size(report.size_bytes)})"
    backups = f", {plural(report.backups, 'backup')}" if report.backups else ""
    lines = [f"{first}migrated {chunks}{backups} to {report.new}"]
    if report.left:
        stay = "stays" if report.left == 1 else "stay"
        lines.append(f"{plural(report.left, 'object')} {stay} in {report.old}: adopted, failed, or new")
    elif not report.interrupted:
        lines.append("the old objects stay until `cafcat prune` removes them")
    return lines


def _warn_of_configuration(call: Call, session: "Session", old: str) -> None:
    """Print a warning if a setting still refers to the old URL of a store, where new chunks would then be written.

    Args:
        call: The call of the command.
        session: The session.
        old: The old URL of the store.
    """
    from cafcat.operations.stores.rows import configured_as

    name = configured_as(session, old)
    if name is not None:
        call.warn(f"the setting {name} still means {old}: change it, or new chunks go there")


def check(
    call: Call,
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Folder, URL or name of the store.", show_default=False)
    ],
) -> int | None:
    """Find out which features a store has.

    Writes test objects of up to 5 MiB below the store's prefix, and removes them. If the catalog has the store, the
    failed checks are stored in the catalog. docs/s3.md lists how cafcat replaces missing features.

    Example: cafcat store check s3://bucket/chunks
    """
    with call.repository() as repository:
        checked = repository.check_store(url)
    document = {
        "store": checked.url,
        "usable": checked.is_usable,
        "remembered": checked.is_remembered,
        "findings": [finding._asdict() for finding in checked.findings],
    }
    call.output.show(document, _findings(checked.findings))
    return None if checked.is_usable else 1


def _findings(findings: "Sequence[Finding]") -> Iterator[str]:
    width = max((len(finding.feature) for finding in findings), default=0)
    for finding in findings:
        said = "; ".join(text for text in (finding.detail, finding.remedy) if text)
        yield f"{finding.feature:<{width}}  {_WORDS[finding.works]:<9}  {said}".rstrip()


def register(app: typer.Typer) -> None:
    """Add the group `cafcat store` to the commands of the program."""
    help = "List, check, add, move, migrate and remove stores. Without a command, the stores are listed."
    below = group(app, "store", help, alone=ls)
    for function in (ls, add, rename, move, migrate, rm, check):
        verb(below, function.__name__, function)
