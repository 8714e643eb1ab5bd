"""Checks of the custody of files: damage, verification, copies, backups."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from cafcat.model import Verdict
from cafcat.operations.doctor.examination import Examination, Reach, days_since
from cafcat.operations.doctor.found import Found, error, ok, warning
from cafcat.support.quantities import format_size, plural

if TYPE_CHECKING:
    from cafcat.catalog.catalog import Catalog
    from cafcat.catalog.health.totals import CatalogTotals

__all__ = ["backup", "catalog", "copies", "damage", "verification"]

_VERIFY_DAYS: Final = 90
"""A chunk should be verified this often, in days."""
_BACKUP_DAYS: Final = 7
"""A catalog that changes should be backed up this often, in days."""


def catalog(examination: Examination) -> Iterator[Found]:
    """Read the numbers of the catalog, which the checks after this one need."""
    totals = examination.totals
    examination.reach = Reach.NUMBERS
    files = sum(chunks.files for chunks in totals.chunks.values())
    committed = totals.chunks.get("committed")
    count = plural(committed.chunks if committed else 0, "committed chunk")
    yield ok(f"{count} with {plural(files, 'file')}; the database has {format_size(totals.catalog_bytes)}")


def damage(examination: Examination) -> Iterator[Found]:
    """Look for chunks and copies whose last verification failed."""
    totals = examination.totals
    damaged = totals.verdicts.get("damaged", 0) + totals.verdicts.get("missing", 0)
    unreadable = totals.verdicts.get("unreadable", 0)
    copies = sum(totals.copy_verdicts.values())
    if damaged:
        yield _damaged(examination, damaged)
    if unneeded := totals.verdicts.get("unneeded", 0):
        text = f"damaged where no live file is: {plural(unneeded, 'chunk')}; removed files there may be damaged"
        yield warning(
            text,
            (
                "no repair is needed: cafcat prune removes a chunk 7 days after it lost its last file "
                "(--grace 0: at once); "
                "cafcat repack --max-unused 0% moves live files out of the others"
            ),
        )
    if unreadable:
        yield warning(
            f"{plural(unreadable, 'chunk')} could not be read", "make the store reachable, then verify again"
        )
    if copies:
        remedy = "run: cafcat verify, then cafcat copy --all --to STORE, which replaces them"
        yield warning(f"copies that were found damaged, missing or unreadable: {copies}", remedy)
    if not totals.verdicts and not copies:
        yield ok("no known damage")


def _damaged(examination: Examination, damaged: int) -> Found:
    text = f"found damaged or missing: {plural(damaged, 'chunk')}"
    remedy = "run: cafcat repair, or cafcat repair --from-source SRC; then cafcat verify"
    if "missing" in examination.totals.verdicts and (lacking := _lacking_changes(examination.catalog)):
        text += f"; the catalog was restored from a backup that lacks {plural(lacking, 'later change')}"
        rebuild = "missing files may be in newer chunks: run cafcat rebuild with an empty catalog"
        remedy = f"{rebuild}; else {remedy}"
    return error(text, remedy)


def _lacking_changes(catalog: "Catalog") -> int:
    """Return how many later changes the restored backup lacked that may have moved files of missing chunks."""
    missing = [chunk.uuid for chunk in catalog.verification.damaged() if chunk.verdict == Verdict.MISSING]
    return catalog.backups.lacking_changes(missing)


def verification(examination: Examination) -> Iterator[Found]:
    """Check that all chunks have been verified at level data, and not too long ago."""
    totals, problems = examination.totals, []
    remedy = f"run: cafcat verify --level data --older-than {_VERIFY_DAYS}d, each day with a share: --sample 5%"
    if totals.never_verified_since is not None and days_since(totals.never_verified_since) > _VERIFY_DAYS:
        days = f"{days_since(totals.never_verified_since):.0f} days"
        text = f"never verified at level data: {plural(totals.never_verified, 'chunk')}, the oldest {days} old"
        problems.append(warning(text, remedy))
    if totals.verified_since is not None and days_since(totals.verified_since) > _VERIFY_DAYS:
        text = (
            f"the last verification of a chunk at level data was {days_since(totals.verified_since):.0f} days ago"
        )
        problems.append(warning(text, remedy))
    yield from problems
    if not problems:
        yield ok(_verified(totals))


def _verified(totals: "CatalogTotals") -> str:
    never = f"{plural(totals.never_verified, 'chunk')} never verified at level data"
    if totals.verified_since is None:
        return never
    others = "all others" if totals.never_verified else "all chunks"
    recently = (
        f"{others} verified{'' if totals.never_verified else ' at level data'} in the last {_VERIFY_DAYS} days"
    )
    return f"{never}; {recently}" if totals.never_verified else recently


def copies(examination: Examination) -> Iterator[Found]:
    """Check that all chunks have a second copy, or none has: then the user decided to keep one copy only."""
    totals = examination.totals
    committed = totals.chunks.get("committed")
    with_copy = (committed.chunks if committed else 0) - totals.without_copy - totals.adopted
    text = f"{plural(totals.without_copy, 'chunk')} without a second copy"
    if with_copy and totals.without_copy:
        have = f"{plural(with_copy, 'chunk')} {'has' if with_copy == 1 else 'have'} one"
        remedy = (
            "run: cafcat copy --all --to STORE, for example after each ingest; "
            "cafcat query single-copy lists these chunks"
        )
        yield warning(f"{text}, but {have}", remedy)
    else:
        yield ok(f"{text} (cafcat copy)")
    if totals.adopted:
        archives = plural(totals.adopted, "adopted archive")
        yield ok(f"{archives} without a copy: cafcat copies none (cafcat repack --chunk moves their files)")


def backup(examination: Examination) -> Iterator[Found]:
    """Check the age of the last backup of the catalog, if the catalog has changed since."""
    totals, remedy = examination.totals, "run: cafcat backup, for example each night"
    changes = f"{plural(totals.changes_since_backup, 'change')} since"
    if lacking := examination.catalog.backups.lacking_changes():
        restored = f"the catalog was restored from a backup that lacks {plural(lacking, 'later change')}"
        changes += f"; {restored}, which cafcat rebuild with an empty catalog finds"
    if totals.backup_at is None and not totals.chunks:
        yield ok("nothing to back up")
    elif totals.backup_at is None:
        yield warning("the catalog has no backup; a rebuild from the stores takes much longer", remedy)
    elif totals.changes_since_backup and (days := days_since(totals.backup_at)) > _BACKUP_DAYS:
        yield warning(f"the last backup is {days:.0f} days old; {changes}", remedy)
    else:
        yield ok(f"the last backup is {days_since(totals.backup_at):.1f} days old; {changes}")
