"""recover and stores: leftovers are removed, foreign objects stay, and unreachable stores fail alone."""

import os
import random
from pathlib import Path

import pytest

import cafcat
from cafcat.errors import InvalidInput, NotFound
from cafcat.events import ChunkRecovered, RecoverOutcome
from cafcat.model import OnConflict
from cafcat.progress import Progress
from tests.worlds.catalog_world import Opener, begin, commit, sql
from tests.worlds.listeners import Following
from tests.worlds.places import Bucket, Folder, Place
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


def test_parts_of_an_upload_are_removed(open_at: Opener, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAFCAT_UPLOAD_MEMORY", "16MB")
    repository = open_at(bucket)
    chunk = begin(repository, {f"{number:02}": random.randbytes(1_000_000) for number in range(20)})
    [upload] = bucket.client.list_multipart_uploads(Bucket=bucket.bucket)["Uploads"]
    where = {"Bucket": bucket.bucket, "Key": upload["Key"], "UploadId": upload["UploadId"]}
    wait_until(lambda: bucket.client.list_parts(**where).get("Parts"))
    die_half_way(chunk)
    assert sql(repository, "SELECT upload_id FROM chunks") == [(upload["UploadId"],)]
    assert counted(recover(repository)) == {"abandoned": 1}
    assert check(repository, bucket) == {}


def test_leftovers_of_an_abandoned_chunk_are_removed(repository: cafcat.Repository, place: Place) -> None:
    """The writer died after it had abandoned the chunk."""
    for chunk in (leave_half(repository, FILES), leave_whole(repository, {"whole": b"whole"})):
        repository.session.catalog.chunks.abandon_chunk(chunk._id, "interrupted")
    assert place.uploads()
    assert chunk_objects(place)
    settled: list[ChunkRecovered] = []
    assert counted(repository.with_progress(Following(on=settled.append)).recover()) == {"cleaned": 2}
    assert {chunk.outcome for chunk in settled} == {RecoverOutcome.CLEANED}
    assert check(repository, place) == {}
    assert counted(repository.recover()) == {}


def test_late_uploads_and_objects_of_finished_chunks_are_removed(
    repository: cafcat.Repository, place: Place
) -> None:
    """A request of a dead writer may begin or complete an upload much later."""
    committed = commit(repository, FILES)
    abandoned = [leave_half(repository, {"half": b"half"}) for _ in range(2)]
    assert recover(repository).abandoned == 2
    place.begin_upload(f"{committed}.caf")
    place.begin_upload(key_of(abandoned[0]))
    place.write(key_of(abandoned[1]), b"late")
    place.begin_upload("somebody else's")
    place.write("somebody else's too", b"bytes")
    live = begin(repository, {"live": b"live"})
    report = repository.recover()
    assert (report.uploads_removed, report.objects_removed) == (2, 1)
    assert (report.unknown_uploads, report.unknown_objects, report.still_leased) == (1, 1, 1)
    assert sorted(place.uploads()) == sorted([key_of(live), "somebody else's"])
    assert chunk_objects(place)["somebody else's too"] == b"bytes"
    live.finish(OnConflict.REPLACE, Progress())
    assert set(chunk_objects(place)) == {f"{committed}.caf", key_of(live), "somebody else's too"}
    report = repository.recover()
    assert counted(report) == {"unknown_uploads": 1, "unknown_objects": 1}


def test_names_that_no_catalog_can_hold_are_left_alone(local: cafcat.Repository, folder: Folder) -> None:
    commit(local, FILES)
    odd = os.fsdecode(b"odd-\xff.partial")
    (folder.folder / odd).write_bytes(b"x")
    assert counted(local.recover()) == {"unknown_uploads": 1}
    assert (folder.folder / odd).exists()


def left_in(repository: cafcat.Repository, store: str) -> None:
    """Insert the row of a dead writer in an unreachable store."""
    statement = (
        "INSERT INTO chunks (uuid, format, store, object_key, lease_expires_at) "
        f"VALUES (gen_random_uuid(), 'caf', '{store}', 'key.caf', now() - interval '1s')"
    )
    sql(repository, "INSERT INTO stores (url) VALUES (%s) ON CONFLICT DO NOTHING", store)
    sql(repository, statement)


@pytest.mark.parametrize("store", ["s3://cafcat-test-there-is-no-such-bucket", "unheard-of://store/x"])
def test_unreachable_store_affects_only_its_chunks(
    local: cafcat.Repository, folder: Folder, s3_environment: None, store: str
) -> None:
    left_in(local, store)
    leave_whole(local, FILES)
    report = recover(local)
    assert (report.adopted, report.abandoned, len(report.failed)) == (1, 0, 1)
    assert store in report.failed[0]
    assert "\n" not in report.failed[0]
    assert sql(local, f"SELECT state, deleted_at FROM chunks WHERE store = '{store}'") == [("writing", None)]


def test_refused_credentials_fail_alone_and_are_not_shown(
    open_at: Opener, bucket: Bucket, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = open_at(bucket)
    chunk = leave_whole(repository, FILES)
    leave_half(repository, {"half": b"half"})
    other = open_at(folder)
    leave_whole(other, {"other": b"other"})
    with monkeypatch.context() as patch:
        patch.setenv("AWS_SECRET_ACCESS_KEY", "correct-horse-battery")
        report = recover(other)
    assert (report.adopted, report.abandoned, len(report.failed)) == (1, 0, 1)
    assert "SignatureDoesNotMatch" in report.failed[0]
    assert "correct-horse" not in report.failed[0]
    assert states(repository).count("writing") == 2
    assert set(chunk_objects(bucket)) == {key_of(chunk)}
    assert len(bucket.uploads()) == 1
    assert counted(recover(repository)) == {"adopted": 1, "abandoned": 1}


def test_missing_chunks_in_an_empty_store_are_not_abandoned(
    local: cafcat.Repository, folder: Folder, tmp_path: Path
) -> None:
    """The mount point of a disk that is not mounted looks like this."""
    commit(local, {"committed": b"committed"})
    leave_whole(local, FILES)
    mounted = tmp_path / "mounted"
    folder.folder.rename(mounted)
    for _ in range(2):
        report = recover(local)
        assert (report.adopted, report.abandoned, len(report.failed)) == (0, 0, 1)
        assert "mounted" in report.failed[0]
        folder.folder.mkdir(exist_ok=True)
    assert states(local) == ["committed", "writing"]
    folder.folder.rmdir()
    mounted.rename(folder.folder)
    assert counted(recover(local)) == {"adopted": 1}
    assert check(local, folder) == FILES | {"committed": b"committed"}


def test_object_that_cannot_be_removed_does_not_count_as_removed(local: cafcat.Repository, folder: Folder) -> None:
    """The store refuses the removal first, and allows it later."""
    stuck = folder.folder / f"{key_of(leave_half(local, FILES))}.partial"
    leave_half(local, {"half": b"half"})
    stuck.unlink()
    stuck.mkdir()
    report = recover(local)
    assert (report.abandoned, len(report.failed)) == (2, 1)
    assert stuck.name in report.failed[0]
    assert sorted(sql(local, "SELECT state, deleted_at IS NULL FROM chunks")) == [
        ("abandoned", False),
        ("abandoned", True),
    ]
    assert len(local.recover().failed) == 1
    stuck.rmdir()
    assert counted(recover(local)) == {"cleaned": 1}
    assert check(local, folder) == {}


def test_only_one_store(local: cafcat.Repository, folder: Folder, open_at: Opener, tmp_path: Path) -> None:
    elsewhere = Folder(tmp_path / "elsewhere")
    leave_whole(open_at(elsewhere), {"elsewhere": b"elsewhere"})
    leave_whole(local, FILES)
    end_leases(local)
    assert counted(local.recover(store=str(elsewhere.folder))) == {"adopted": 1}
    assert states(local) == ["committed", "writing"]
    with pytest.raises(NotFound, match="no chunk in the store"):
        local.recover(store=str(tmp_path / "nowhere"))
    with pytest.raises(InvalidInput):
        local.recover(store="")
    assert counted(local.recover()) == {"adopted": 1}


def test_objects_of_a_store_below_another_are_not_unknown(
    open_at: Opener, local: cafcat.Repository, folder: Folder
) -> None:
    commit(local, FILES)
    below = open_at(Folder(folder.folder / "deeper"))
    commit(below, {"below": b"below"})
    leave_half(below, {"half": b"half"})
    report = local.recover()
    assert (report.unknown_objects, report.unknown_uploads) == (0, 0)
