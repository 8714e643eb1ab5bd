"""recover during other operations: a lease protects a chunk, and only one of two recovers processes it."""

import threading
from pathlib import Path

import psycopg
import pytest

import cafcat
from cafcat.errors import CafcatError, Locked
from cafcat.events import ChunkRecovered, RecoverOutcome
from cafcat.model import OnConflict
from cafcat.operations.recover import run as recovering
from cafcat.operations.recover.report import RecoverReport
from cafcat.progress import Progress
from cafcat.stores.putting import put_once
from cafcat.writing.journal import journal_key
from tests.worlds.catalog_world import Opener, begin, commit, sql
from tests.worlds.listeners import Following, Once
from tests.worlds.places import Folder, Place
from tests.worlds.recover_world import (
    FILES,
    check,
    chunk_objects,
    counted,
    die_half_way,
    end_leases,
    key_of,
    leave_half,
    leave_whole,
    place,
    recover,
    states,
)
from tests.worlds.waiting import wait_until

__all__ = ["place"]


def test_a_chunk_that_is_being_written_is_left_alone(repository: cafcat.Repository, place: Place) -> None:
    writing = begin(repository, FILES)
    report = repository.recover()
    leases = sql(
        repository, "SELECT to_char(max(lease_expires_at) AT TIME ZONE 'UTC', 'HH24:MI:SS.US') FROM chunks"
    )
    assert report.leases_end_at
    assert report.leases_end_at.endswith(f"T{leases[0][0]}Z")
    assert counted(report) == {"still_leased": 1, "leases_end_at": report.leases_end_at}
    assert states(repository) == ["writing"]
    writing.finish(OnConflict.REPLACE, Progress())
    assert check(repository, place) == FILES


def test_a_whole_chunk_proves_itself_before_its_lease_is_over(repository: cafcat.Repository, place: Place) -> None:
    whole = begin(repository, FILES)
    whole._make_durable(Progress())
    whole._mapping.close()
    assert repository.recover(dry_run=True).adopted == 1
    assert states(repository) == ["writing"]
    assert counted(repository.recover()) == {"adopted": 1}
    assert check(repository, place) == FILES


def test_a_damaged_chunk_with_a_lease_is_left_alone(repository: cafcat.Repository, place: Place) -> None:
    chunk = begin(repository, FILES)
    place.write(key_of(chunk), b"not an archive")
    assert counted(repository.recover()) == {"still_leased": 1} | left_to(repository)
    assert states(repository) == ["writing"]
    chunk._lease.end()
    die_half_way(chunk)


def left_to(repository: cafcat.Repository) -> dict[str, object]:
    return {"leases_end_at": repository.recover(dry_run=True).leases_end_at}


def test_recover_beside_writers(local: cafcat.Repository, folder: Folder, open_at: Opener) -> None:
    """An ingest commits many chunks while leftovers are recovered, again and again."""
    errors: list[BaseException] = []
    done = threading.Event()

    def write() -> None:
        try:
            other = open_at(folder)
            for number in range(30):
                commit(other, {f"{number}/{path}": data for path, data in FILES.items()})
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    leave_half(local, {"half": b"half"})
    leave_whole(local, {"whole": b"whole"})
    end_leases(local)
    thread = threading.Thread(target=write)
    thread.start()
    while not done.is_set():
        assert local.recover().failed == ()
    thread.join()
    assert errors == []
    assert len(check(local, folder)) == 30 * len(FILES) + 1


def test_two_recovers_at_once_settle_each_chunk_once(place: Place, open_at: Opener) -> None:
    first, second = open_at(place), open_at(place)
    for number in range(8):
        leave_whole(first, {f"{number}/{path}": data for path, data in FILES.items()})
        leave_half(first, {f"half {number}": b"half"})
    end_leases(first)
    reports: list[RecoverReport] = []
    settled: list[ChunkRecovered] = []
    barrier = threading.Barrier(2)

    def work(repository: cafcat.Repository) -> None:
        barrier.wait()
        reports.append(repository.with_progress(Following(on=settled.append)).recover())

    threads = [threading.Thread(target=work, args=[repository]) for repository in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [report.failed for report in reports] == [(), ()]
    assert sum(report.adopted for report in reports) == 8
    # A recover may treat a chunk that the other one has abandoned, and not yet removed, as a leftover, and remove
    # it.
    assert sum(report.abandoned for report in reports) == 8
    assert sorted(chunk.uuid for chunk in settled if chunk.outcome is not RecoverOutcome.CLEANED) == sorted(
        row[0] for row in sql(first, "SELECT uuid FROM chunks")
    )
    assert sql(first, "SELECT count(*) FROM events WHERE kind = 'chunk_committed'") == [(8,)]
    assert len(check(first, place)) == 8 * len(FILES)


def test_lease_is_acquired_once_and_only_its_owner_can_renew_it(local: cafcat.Repository) -> None:
    leave_whole(local, FILES)
    recovery = local.session.catalog.recovery
    end_leases(local)
    [found] = recovery.overdue(local.session.stores[local.settings.store].url)
    assert recovery.acquire(found, "first", 60) == found._replace(owner="first")
    assert recovery.acquire(found, "second", 60) is None
    recovery.renew(found.id, "first", 60)
    with pytest.raises(Locked):
        recovery.renew(found.id, "second", 60)
    with pytest.raises(Locked):
        recovery.release(found.id, "second")
    assert recovery.acquire(found, "second", 60) is None
    recovery.release(found.id, "first")
    assert recovery.acquire(found, "second", 60) == found._replace(owner="second")


def test_chunk_is_checked_by_only_one_recover(place: Place, open_at: Opener) -> None:
    first, second = open_at(place), open_at(place)
    leave_whole(first, FILES)
    reports: list[RecoverReport] = []
    assert recover(first, progress=Once(lambda: reports.append(second.recover()))).adopted == 1
    assert (reports[0].still_leased, reports[0].adopted, reports[0].abandoned) == (1, 0, 0)
    assert check(first, place) == FILES


@pytest.mark.parametrize("renew_seconds", [0, 3600])
def test_recover_that_lost_its_lease_changes_nothing(
    place: Place, open_at: Opener, monkeypatch: pytest.MonkeyPatch, renew_seconds: int
) -> None:
    """The recover notices the loss when it renews its lease, or when it commits."""
    monkeypatch.setattr(recovering, "_RENEW_SECONDS", renew_seconds)
    first, second = open_at(place), open_at(place)
    leave_whole(first, FILES)
    reports: list[RecoverReport] = []
    slow = recover(first, progress=Once(lambda: reports.append(recover(second))))
    assert counted(slow) == {}
    assert counted(reports[0]) == {"adopted": 1}
    assert check(first, place) == FILES


def test_slow_writer_cannot_commit_an_abandoned_chunk(repository: cafcat.Repository, place: Place) -> None:
    slow = begin(repository, FILES)
    assert counted(recover(repository)) == {"abandoned": 1}
    assert place.uploads() == []
    with pytest.raises(CafcatError):
        slow.finish(OnConflict.REPLACE, Progress())
    assert check(repository, place) == {}
    assert counted(recover(repository)) == {}


def test_slow_writer_finds_its_chunk_adopted(repository: cafcat.Repository, place: Place) -> None:
    slow = begin(repository, FILES)
    reports: list[RecoverReport] = []

    class RecoverAtCheckpoint(Progress):
        def checkpoint(self) -> None:
            if chunk_objects(place):
                reports.append(recover(repository))

    assert slow.finish(OnConflict.REPLACE, RecoverAtCheckpoint()).commit.added == len(FILES)
    assert counted(reports[0]) == {"adopted": 1}
    assert sql(repository, "SELECT count(*) FROM events WHERE kind = 'chunk_committed'") == [(1,)]
    assert check(repository, place) == FILES
    assert {location.path: repository.read(location.path) for location in repository.list()} == FILES


def test_writer_that_commits_during_recover_wins(repository: cafcat.Repository, place: Place) -> None:
    """The commit happens while recover checks the chunk, which it would have adopted."""
    slow = begin(repository, FILES)
    summary = slow._make_durable(Progress())

    def commit_now() -> None:
        with slow._mapping as mapping:
            repository.session.catalog.commit.commit_chunk(
                slow._id, summary, mapping, OnConflict.REPLACE, all_new=True
            )

    assert counted(recover(repository, progress=Once(commit_now))) == {}
    assert check(repository, place) == FILES


def test_writer_that_commits_after_recover_missed_its_object_wins(
    repository: cafcat.Repository, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects are removed only after the row excludes that a file points to them."""
    slow = begin(repository, FILES)
    abandon = repository.session.catalog.chunks.abandon_chunk

    def late(chunk_id: int, reason: str) -> None:
        slow.finish(OnConflict.REPLACE, Progress())
        abandon(chunk_id, reason)

    end_leases(repository)
    with monkeypatch.context() as patch:
        patch.setattr(repository.session.catalog.chunks, "abandon_chunk", late)
        assert counted(repository.recover()) == {}
    assert check(repository, place) == FILES


def test_recover_waits_for_a_writer_of_the_record_of_a_deleted_chunk(
    repository: cafcat.Repository, place: Place, database_url: str, tmp_path: Path
) -> None:
    """A prune was killed before it removed a chunk. The store of the chunk lacks the record of its commit."""
    chunk = commit(repository, {"gone": b"gone"})
    commit(repository, {"other": b"other"})
    repository.rm(["gone"])
    journal = repository.session.catalog.journal
    [(chunk_id,)] = sql(repository, "UPDATE chunks SET state = 'deleted' WHERE uuid = %s RETURNING id", chunk)
    [record] = journal.of_chunk(chunk_id)
    key = journal_key(record.sequence, record.uuid)
    store = repository.session.stores[place.url]
    content = store.read(key, 0, store.stat(key).size_bytes)
    store.delete(key)
    sql(repository, "UPDATE journal SET unwritten = ARRAY[%s] WHERE id = %s", place.url, record.sequence)
    waiting = (
        "SELECT FROM pg_stat_activity WHERE query LIKE 'SELECT pg_advisory%' AND wait_event_type = 'Lock' "
        "AND datname = current_database()"
    )
    with cafcat.open(database_url=database_url, home=tmp_path / "home", store=place.url) as other:
        recovery = threading.Thread(target=other.recover)
        with psycopg.connect(database_url, autocommit=True) as watching, journal.exclusively(place.url):
            recovery.start()
            wait_until(lambda: not recovery.is_alive() or watching.execute(waiting).fetchall())
            put_once(store, key, lambda: [content])
            journal.record_written(record.sequence, place.url)
        recovery.join()
    assert key not in place.everything()
    assert not any(chunk in name for name in place.everything())
