"""The command `cafcat verify`: its flags, progress and output."""

from dataclasses import asdict, replace
from shlex import quote
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import typer

from cafcat.cli.call import Call, verb
from cafcat.cli.clusters import Cluster, executor_of
from cafcat.cli.errors import DAMAGE, INTERRUPTED, SOME_FAILED
from cafcat.cli.operation import operation
from cafcat.cli.options import ONLY_IN_STORE
from cafcat.cli.output import printable
from cafcat.cli.progress import ShownProgress
from cafcat.cli.reading.lost import ROWS_BACK, warn_if_lost
from cafcat.events import Event, ObjectChecked
from cafcat.model import Finding, FindingKind, Verdict, VerifyLevel
from cafcat.operations.verify.options import VerifyOptions
from cafcat.support.quantities import format_size, plural

if TYPE_CHECKING:
    from cafcat.operations.verify.report import VerifyReport

__all__ = ["register"]

_OF_WHOLE_OBJECTS: Final = (FindingKind.MISSING, FindingKind.SIZE, FindingKind.INDEX)


class _Progress(ShownProgress):
    """Progress of `cafcat verify`. Prints each finding on stdout.

    With -v, each checked object is printed, too: on stderr, with --json on stdout.

    Attributes:
        damaged: True if a chunk itself was found damaged or missing.
        missing: UUIDs of the chunks that were found missing themselves.
        has_wrong_rows: True if rows of a chunk in the catalog were found missing or wrong.
        damaged_copies: URLs of the stores with damaged or missing copies.
    """

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self.damaged = False
        self.missing: list[UUID] = []
        self.has_wrong_rows = False
        self.damaged_copies: set[str] = set()

    def show(self, event: Event) -> None:
        if not isinstance(event, ObjectChecked):
            return
        checked = event
        of_rows = [finding for finding in checked.findings if finding.kind is FindingKind.MAPPING]
        self.has_wrong_rows = self.has_wrong_rows or bool(of_rows)
        if checked.chunk is not None and not of_rows and any(finding.is_live for finding in checked.findings):
            self._note_damage(checked)
        for finding in checked.findings:
            self._print_finding(checked, finding)
        if self._call.verbose and self._call.json:
            document = checked._asdict() | {"findings": len(checked.findings)}
            self._call.output.document({"checked": document})
        elif self._call.verbose:
            read = f", {format_size(checked.bytes_read)} read" if checked.bytes_read else ""
            self._print(f"{_name(checked)}: {checked.verdict} ({plural(checked.files, 'file')}{read})")

    def _note_damage(self, checked: ObjectChecked) -> None:
        if checked.verdict in (Verdict.DAMAGED, Verdict.MISSING):
            self.damaged = self.damaged or not checked.is_copy
            if checked.verdict == Verdict.MISSING and not checked.is_copy and checked.chunk is not None:
                self.missing.append(UUID(checked.chunk))
            self.damaged_copies.update([checked.store] if checked.is_copy and checked.store else ())

    def _print_finding(self, checked: ObjectChecked, finding: Finding) -> None:
        if self._call.json:
            where = {name: getattr(checked, name) for name in ("chunk", "store", "is_copy", "object")}
            self._call.output.document({"finding": where | finding._asdict()})
        else:
            self._call.output.line(f"{_name(checked)}: {_shown(finding)}")
        self._call.output.flush()


def _name(checked: ObjectChecked) -> str:
    if checked.chunk is None:
        return printable(checked.object or "catalog")
    return f"chunk {checked.chunk}" + (f", copy in {checked.store}" if checked.is_copy else "")


def _shown(finding: Finding) -> str:
    """Return a finding in one line: "file a/b.jpg [0, 512): the bytes of this file have CRC-32C ..."."""
    # The detail of a size names all cut-off files, this one first.
    is_named = finding.path is not None and finding.kind is not FindingKind.SIZE
    path = f" {printable(finding.path)}" if is_named and finding.path else ""
    span = f" [{finding.start_byte}, {finding.end_byte})" if finding.start_byte is not None else ""
    # The detail of a single file names the same reason.
    unneeded = "" if finding.is_live or finding.kind not in _OF_WHOLE_OBJECTS else "; the chunk has no live file"
    return f"{finding.kind}{path}{span}: {printable(finding.detail)}{unneeded}"


def verify(call: Call, options: VerifyOptions, *, cluster: Cluster = None) -> int:
    """Check chunks for damage. The exit code is 5 if there is any.

    By default, existence, size and index of each chunk and copy are checked. --level data also reads every byte.

    Example: cafcat verify --level data --older-than 90d
    """
    progress = _Progress(call)
    with (
        executor_of(cluster, share_password=options.share_password) as executor,
        operation(
            call,
            progress,
            at_hand="any open check",
            if_interrupted="results so far are in the catalog; run the same verify again to continue",
        ) as session,
    ):
        from cafcat.operations.verify.run import run

        report = run(session, replace(options, executor=executor))
        if not any(getattr(report, verdict) for verdict in Verdict):
            warn_if_lost(call, session)
        lacking = session.catalog.backups.lacking_changes(progress.missing) if progress.missing else 0
    call.summarize({"summary": asdict(report)}, [_summary(report), *_remedy(report, progress, lacking)])
    return _exit_code(report)


def _exit_code(report: "VerifyReport") -> int:
    if report.interrupted:
        return INTERRUPTED
    if report.damaged or report.missing:
        return DAMAGE
    return SOME_FAILED if report.unreadable or report.unpacked else 0


def _remedy(report: "VerifyReport", progress: _Progress, lacking_changes: int) -> list[str]:
    """Return the lines that name the commands against the damage; none for damage of the catalog.

    Args:
        report: Totals of the verify.
        progress: Has the findings.
        lacking_changes: Number of later changes that the restored backup lacks; 0 if none of its chunks is missing.
    """
    if report.level is VerifyLevel.SOURCE:
        changed = "files that changed at their source: cafcat ingest --checksum SRC packs their new content"
        unpacked = (
            "unpacked files: cafcat ingest SRC packs them; give --prefix, --include and --exclude as for the ingest"
        )
        return [*([changed] if report.damaged else ()), *([unpacked] if report.unpacked else ())]
    lines = [
        f"to replace copies: cafcat copy --all --to {quote(store)}" for store in sorted(progress.damaged_copies)
    ]
    if progress.has_wrong_rows:
        lines.append(ROWS_BACK)
    if progress.damaged:
        lines.insert(0, "to repair chunks: cafcat repair, or cafcat repair --from-source SRC (both ask first)")
    if lacking_changes:
        lacking = f"the restored backup lacks {plural(lacking_changes, 'later change')}"
        lines.insert(0, f"{lacking}; to find missing files in newer chunks: cafcat rebuild with an empty catalog")
    return lines


_OBJECTS = {VerifyLevel.CATALOG: "catalog", VerifyLevel.SOURCE: "source"}


def _summary(report: "VerifyReport") -> str:
    """Return the result in one line: "verified 12 objects (data): 11 ok, 1 damaged; 120 files, 1.2 GB read"."""
    verdicts: dict[str, Any] = {verdict: getattr(report, verdict) for verdict in Verdict}
    verdicts["damaged or missing where no live file is"] = report.unneeded
    verdicts[Verdict.UNREADABLE] -= len(report.stores_out_of_reach)  # each counts as one unreadable object
    stores = plural(len(report.stores_out_of_reach), "store")
    away = f"; {stores} out of reach" if report.stores_out_of_reach else ""
    count = sum(verdicts.values())
    if report.level is VerifyLevel.SOURCE:  # a file that was edited at its source is no damage
        equal = (
            "ok" if not report.unpacked else "equal in all packed files" if report.equal else "without packed files"
        )
        words: dict[str, str] = {Verdict.DAMAGED: "differs", Verdict.OK: equal}
        verdicts = {words.get(verdict, verdict): number for verdict, number in verdicts.items()}
    counts = ", ".join(f"{number} {verdict}" for verdict, number in verdicts.items() if number)
    first = "interrupted; " if report.interrupted else "resumed; " if report.resumed else ""
    if not count:
        was_any = report.interrupted or report.stores_out_of_reach
        return (
            f"{first}nothing was verified{away}"
            if was_any
            else f"{first}nothing to verify: no chunk was chosen, or the catalog has none"
        )
    gone = f"; {report.gone} deleted meanwhile" if report.gone else ""
    absent = f"; {plural(report.absent, 'file')} not in the source any more" if report.absent else ""
    unpacked = f"; {plural(report.unpacked, 'file')} not in the catalog" if report.unpacked else ""
    unreadable = (
        f"; {report.unreadable_files} {'file or folder' if report.unreadable_files == 1 else 'files or folders'} "
        f"could not be read, {plural(report.equal, 'file')} equal"
        if report.unreadable_files
        else ""
    )
    read = f"; {plural(report.files_checked, 'file')}, {format_size(report.bytes_read)} read"
    what = plural(count, _OBJECTS.get(report.level, "object"))
    unchecked = f"; {plural(report.unchecked_blocks, 'block')} with a hash function that is not checked"
    end = f"{read if report.files_checked else ''}{unchecked if report.unchecked_blocks else ''}"
    return f"{first}verified {what} ({report.level}): {counts}{away}{gone}{unreadable}{absent}{unpacked}{end}"


def register(app: typer.Typer) -> None:
    """Add `cafcat verify` to the commands of the program."""
    panels = {
        "Choosing chunks": ("sample", "older_than", "chunks", "prefix", "store"),
        "With --level source": ("include", "exclude", "follow_symlinks", "unpack_tars"),
    }
    hints = {
        "--read-data": "--level data reads every byte",
        "--read-data-subset": "--level data --sample 5% reads every byte of a share of the chunks",
    }
    verb(
        app,
        "verify",
        verify,
        store=ONLY_IN_STORE,
        commits=True,
        moves=True,
        measured=True,
        panels=panels,
        hints=hints,
    )
