"""Stores that move to another URL, or whose chunks are migrated to another store; and missing stores."""

import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import pytest

import cafcat
from cafcat.errors import CafcatError, Conflict, Corrupt, Locked, NotFound, StoreFailed, Unavailable
from cafcat.events import ObjectChecked
from cafcat.model import Location, OnConflict, Verdict
from cafcat.operations.chosen_stores import store_to_write
from cafcat.progress import Progress
from cafcat.reading.reader import FileReader
from cafcat.reading.request import ReadRequest
from cafcat.stores.marker import Marker, marker_key, write_marker
from tests.worlds.catalog_world import Opener, begin, commit, sql
from tests.worlds.listeners import Following
from tests.worlds.places import Bucket, Folder, Place

FIRST = {"a/one": b"one" * 100, "a/empty": b""}
SECOND = {"b/two": bytes(range(256)) * 5000}
FILES = FIRST | SECOND


@pytest.fixture
def old(tmp_path: Path) -> Folder:
    """A folder with an odd name, which is percent-encoded in URLs."""
    return Folder(tmp_path / "old é 100%25 #?")


@pytest.fixture
def new(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "new place")


@pytest.fixture
def repository(open_at: Opener, old: Folder) -> cafcat.Repository:
    repository = open_at(old)
    commit(repository, FIRST)
    commit(repository, SECOND)
    return repository


def content(repository: cafcat.Repository, files: Mapping[str, bytes] = FILES) -> dict[str, bytes]:
    return {path: repository.read(path) for path in files}


def urls(repository: cafcat.Repository) -> set[str]:
    return {store.url for store in repository.stores()}


def stores_of_chunks(repository: cafcat.Repository) -> set[str]:
    return {row[0] for row in sql(repository, "SELECT store FROM chunks")}


# A store that was moved


def test_one_update_moves_all_rows_of_a_store(
    repository: cafcat.Repository, old: Folder, new: Folder, tmp_path: Path
) -> None:
    repository.copy(to=str(tmp_path / "copies"))
    repository.backup()
    sql(repository, "UPDATE journal SET unwritten = ARRAY[%s] WHERE id = 1", old.url)
    shutil.move(old.folder, new.folder)
    report = repository.move_store(old.url, new.url)
    assert (report.objects, report.looked_at, report.dry_run) == (3, 3, False)
    assert stores_of_chunks(repository) == {new.url}
    assert sql(repository, "SELECT store FROM backups") == [(new.url,)]
    assert sql(repository, "SELECT unwritten FROM journal WHERE id = 1") == [([new.url],)]
    assert old.url not in urls(repository)
    assert content(repository) == FILES
    assert repository.verify(level="data").ok == 4
    assert repository.session.catalog.reports.findings() == []


def test_a_store_is_named_by_name_url_or_folder(repository: cafcat.Repository, old: Folder, new: Folder) -> None:
    repository.add_store("disk", str(old.folder))
    shutil.copytree(old.folder, new.folder)
    assert repository.move_store("disk", str(new.folder)).new == new.url
    assert repository.move_store(str(new.folder), old.url).new == old.url
    [store] = repository.stores()
    assert (store.name, store.url, store.chunks) == ("disk", old.url, 2)


def test_a_dry_run_moves_nothing(repository: cafcat.Repository, old: Folder, new: Folder) -> None:
    shutil.copytree(old.folder, new.folder)
    assert repository.move_store(old.url, new.url, dry_run=True).looked_at == 2
    assert stores_of_chunks(repository) == {old.url}


@pytest.mark.parametrize("look_at_all", [False, True])
def test_a_new_place_without_all_objects_is_refused(
    repository: cafcat.Repository, old: Folder, new: Folder, look_at_all: bool
) -> None:
    with pytest.raises(StoreFailed, match="2 of 2 objects"):
        repository.move_store(old.url, new.url, look_at_all=look_at_all)
    shutil.copytree(old.folder, new.folder)
    chunk = sorted(new.folder.glob("*.caf"))[0]
    chunk.write_bytes(chunk.read_bytes() + b"!")
    with pytest.raises(StoreFailed, match=rf"1 of 2 objects .*{chunk.name} has "):
        repository.move_store(old.url, new.url, look_at_all=look_at_all)
    assert stores_of_chunks(repository) == {old.url}


@pytest.mark.parametrize("how", ["missing", "of another store", "copied"])
def test_marker_proves_that_the_new_place_is_the_same_store(
    repository: cafcat.Repository, old: Folder, new: Folder, how: str
) -> None:
    store_uuid, catalog_uuid = uuid4(), repository.session.catalog.identities.of("").catalog
    sql(repository, "UPDATE stores SET uuid = %s", store_uuid)
    marker = Marker(store_uuid, catalog_uuid, "2026-11-22T00:00:00.000000Z", False, "host", "database")
    write_marker(repository.session.stores[old.url], marker)
    shutil.copytree(old.folder, new.folder)
    if how != "copied":
        (new.folder / marker_key(catalog_uuid)).unlink()
    if how == "of another store":
        write_marker(repository.session.stores[new.url], marker._replace(store=uuid4()))
    if how == "copied":
        assert repository.move_store(old.url, new.url).objects == 2
    else:
        with pytest.raises(StoreFailed, match="is not the store"):
            repository.move_store(old.url, new.url)
        assert stores_of_chunks(repository) == {old.url}


def test_a_store_that_is_written_to_does_not_move(repository: cafcat.Repository, old: Folder, new: Folder) -> None:
    chunk = begin(repository, {"c": b"c"})
    shutil.copytree(old.folder, new.folder)
    with pytest.raises(Locked, match="its lease ends at"):
        repository.move_store(old.url, new.url)
    chunk.finish(OnConflict.REPLACE, Progress())
    with pytest.raises(StoreFailed):
        repository.move_store(old.url, new.url)


def test_store_does_not_move_to_a_place_with_objects_of_another(
    repository: cafcat.Repository, old: Folder, new: Folder
) -> None:
    repository.copy(to=new.url)
    with pytest.raises(Conflict, match="store migrate"):
        repository.move_store(old.url, new.url)


def test_a_writer_that_began_before_a_move_does_not_bring_the_old_store_back(
    repository: cafcat.Repository, old: Folder, new: Folder
) -> None:
    repository.session.catalog.stores.register(store_to_write(repository.session).url)
    shutil.move(old.folder, new.folder)
    repository.move_store(old.url, new.url)
    for table in ("chunks", "chunk_copies", "backups"):
        with pytest.raises(Conflict, match="cafcat store ls"):
            _insert(repository, table, old.url)
    assert old.url not in urls(repository)


def _insert(repository: cafcat.Repository, table: str, store: str) -> None:
    catalog = repository.session.catalog
    if table == "chunks":
        values = {"run_id": None, "archive_format": "caf", "owner": "here:1:test", "lease_seconds": 9}
        catalog.chunks.begin_chunk(uuid=uuid4(), store_url=store, object_key="x.caf", **values)  # type: ignore[arg-type]
    elif table == "chunk_copies":
        catalog.copies.begin(1, store, "x.caf", "here:1:test", 9)
    else:
        catalog.backups.begin(store, "backups/x", 1, "here:1:test", 9)


def read_at(repository: cafcat.Repository, location: Location) -> bytes:
    """Read a file where an earlier look-up found it."""
    session = repository.session
    return FileReader(session.catalog, session.stores, Progress()).read(ReadRequest.of(location.path, location))


def test_reads_with_an_old_location_go_on_over_a_move(
    repository: cafcat.Repository, old: Folder, new: Folder, open_at: Opener
) -> None:
    warnings: list[str] = []
    reader = cafcat.open(repository.settings, warn=warnings.append)
    with reader:
        locations = [reader.locate(path) for path in FILES]
        parts = reader.stream_many(FILES)
        shutil.move(old.folder, new.folder)
        repository.move_store(old.url, new.url)
        assert {found.path: read_at(reader, found) for found in locations} == FILES
        assert {path: b"".join(blocks) for path, blocks in parts if not isinstance(blocks, CafcatError)} == FILES
        shutil.move(new.folder, old.folder)
        repository.move_store(new.url, old.url)
        assert content(reader) == FILES
    assert warnings == []


# Missing stores


@pytest.mark.parametrize("how", ["gone", "empty", "of somebody else"])
def test_missing_store_is_no_damage(
    repository: cafcat.Repository, old: Folder, new: Folder, tmp_path: Path, how: str
) -> None:
    shutil.move(old.folder, new.folder)
    if how != "gone":
        old.folder.mkdir()
    if how == "of somebody else":
        (old.folder / "letter.txt").write_bytes(b"Dear Sir")
    with pytest.raises(Unavailable, match="cafcat store move") as found:
        repository.read("a/one")
    assert not isinstance(found.value, Corrupt)
    with pytest.raises(Unavailable, match="cafcat store move"):
        dict(repository.read_many(FILES))
    checked: list[ObjectChecked] = []
    report = repository.with_progress(Following(on=checked.append)).verify()
    assert (report.ok, report.missing, report.unreadable) == (0, 0, 1)
    assert [(object.chunk, object.store, object.verdict) for object in checked] == [
        (None, old.url, Verdict.UNREADABLE)
    ]
    (tmp_path / "tree").mkdir()
    with pytest.raises(Unavailable, match="cafcat store move"):
        repository.ingest([tmp_path / "tree"])
    with pytest.raises(Unavailable, match="cafcat store move"):
        repository.ingest([tmp_path / "tree"], dry_run=True)
    shutil.rmtree(old.folder, ignore_errors=True)
    shutil.move(new.folder, old.folder)
    assert repository.verify().ok == 2


def test_missing_chunk_of_an_existing_store_is_damage(repository: cafcat.Repository, old: Folder) -> None:
    for chunk in old.folder.glob("*.caf"):
        chunk.unlink()
    with pytest.raises(Corrupt, match="is missing"):
        repository.read("a/one")
    assert repository.verify().missing == 2


# A store that is migrated


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.slow)])
def target(request: pytest.FixtureRequest, new: Folder) -> Place:
    if request.param == "folder":
        return new
    bucket: Bucket = request.getfixturevalue("bucket")
    return bucket


def test_store_is_migrated_there_and_back(repository: cafcat.Repository, old: Folder, target: Place) -> None:
    repository.backup()
    reader = cafcat.open(repository.settings)
    with reader:
        locations = [reader.locate(path) for path in FILES]
        before = {key: data for key, data in old.objects().items() if key.endswith(".caf")}
        report = repository.migrate_store(old.url, target.url)
        assert (report.chunks, report.backups, report.left, report.failed) == (2, 1, 0, ())
        assert before.items() <= target.objects().items()
        assert before.items() <= old.objects().items()
        assert stores_of_chunks(repository) == {target.url}
        assert repository.prune(dry_run=False).copies_waiting == 2
        assert repository.prune(grace_seconds=0, dry_run=False).objects == 2
        assert not before.keys() & old.objects().keys()
        assert {found.path: read_at(reader, found) for found in locations} == FILES
    assert repository.verify(level="data").ok == 2
    assert repository.migrate_store(target.url, old.url).chunks == 2
    assert repository.migrate_store(old.url, target.url).chunks == 2
    assert repository.migrate_store(target.url, old.url).chunks == 2
    assert stores_of_chunks(repository) == {old.url}
    repository.prune(grace_seconds=0, dry_run=False)
    assert {key for key in old.objects() if key.endswith(".caf")} == set(before)
    assert not any(key.endswith(".caf") for key in target.objects())
    assert content(repository) == FILES
    assert repository.session.catalog.reports.findings() == []


def test_interrupted_migration_is_continued(repository: cafcat.Repository, old: Folder, new: Folder) -> None:
    asked = iter([False, True])
    report = repository.with_progress(Following(should_stop=lambda: next(asked, True))).migrate_store(
        old.url, new.url
    )
    assert report.interrupted
    assert content(repository) == FILES
    report = repository.migrate_store(old.url, new.url)
    assert not report.interrupted
    assert stores_of_chunks(repository) == {new.url}
    assert content(repository) == FILES


def test_damaged_chunk_is_not_migrated(repository: cafcat.Repository, old: Folder, new: Folder) -> None:
    place = repository.locate("b/two")
    chunk = old.folder / place.object_key
    data = bytearray(chunk.read_bytes())
    data[place.start_byte] ^= 1
    chunk.write_bytes(data)
    report = repository.migrate_store(old.url, new.url)
    assert (report.chunks, report.left, len(report.failed)) == (1, 1, 1)
    assert repository.locate("b/two").store == old.url
    assert repository.locate("a/one").store == new.url
    assert repository.prune(grace_seconds=0, dry_run=False).objects == 1
    assert chunk.exists()


def test_a_damaged_copy_from_before_is_not_switched_to(
    repository: cafcat.Repository, old: Folder, new: Folder
) -> None:
    repository.copy(to=new.url)
    place = repository.locate("b/two")
    (new.folder / place.object_key).write_bytes(bytes((old.folder / place.object_key).stat().st_size))
    report = repository.migrate_store(old.url, new.url)
    assert (report.chunks, len(report.failed)) == (1, 1)
    assert repository.locate("b/two").store == old.url
    assert content(repository) == FILES


def test_prune_keeps_a_chunk_that_is_missing_at_the_new_place(
    repository: cafcat.Repository, old: Folder, new: Folder
) -> None:
    repository.migrate_store(old.url, new.url)
    chunk = repository.locate("b/two").object_key
    (new.folder / chunk).unlink()
    report = repository.prune(grace_seconds=0, dry_run=False)
    assert (report.objects, len(report.failed)) == (1, 1)
    assert content(repository) == FILES


def test_copies_that_a_migration_left_stay_while_the_new_store_is_away(
    repository: cafcat.Repository, old: Folder, new: Folder, tmp_path: Path
) -> None:
    repository.migrate_store(old.url, new.url)
    new.folder.rename(tmp_path / "away")
    report = repository.prune(grace_seconds=0, dry_run=False)
    [message] = report.failed
    assert message.startswith(f"kept 2 of the copies that a migration left in {old.url}: cannot find the store")
    (tmp_path / "away").rename(new.folder)
    assert repository.prune(grace_seconds=0, dry_run=False).objects == 2


def test_a_dry_prune_counts_a_copy_that_a_migration_left_once(repository: cafcat.Repository, new: Folder) -> None:
    """The chunk itself is pruned, too."""
    repository.migrate_store(repository.locate("a/one").store, new.url)
    repository.rm(FILES)
    shown = repository.prune(grace_seconds=0, dry_run=True)
    done = repository.prune(grace_seconds=0, dry_run=False)
    assert (shown.chunks, shown.objects, shown.bytes_freed) == (done.chunks, done.objects, done.bytes_freed)
    assert done.objects == 4


def test_copies_of_chunks_of_the_new_store_are_migrated(
    repository: cafcat.Repository, old: Folder, new: Folder
) -> None:
    """The own object of one chunk is damaged: then its copy stays."""
    repository.migrate_store(old.url, new.url)
    repository.copy(to=old.url)
    place = repository.locate("b/two")
    chunk = new.folder / place.object_key
    data = chunk.read_bytes()
    chunk.write_bytes(bytes(len(data)))
    report = repository.migrate_store(old.url, new.url)
    assert (report.chunks, report.left, len(report.failed)) == (1, 1, 1)
    assert f"its object in {new.url} is damaged" in report.failed[0]
    chunk.write_bytes(data)
    report = repository.migrate_store(old.url, new.url)
    assert (report.chunks, report.left, report.failed) == (1, 0, ())
    assert repository.prune(grace_seconds=0, dry_run=False).objects == 2
    assert not any(key.endswith(".caf") for key in old.objects())
    assert stores_of_chunks(repository) == {new.url}
    assert content(repository) == FILES


def test_new_copy_in_the_old_store_is_kept(repository: cafcat.Repository, old: Folder, new: Folder) -> None:
    repository.migrate_store(old.url, new.url)
    assert repository.copy(to=old.url).found == 2
    assert repository.prune(grace_seconds=0, dry_run=False).objects == 0
    assert repository.verify().ok == 4


def test_adopted_archives_are_not_migrated(
    repository: cafcat.Repository, old: Folder, new: Folder, tmp_path: Path
) -> None:
    uuid = next(repository.chunks()).uuid
    archive = old.folder / "theirs.caf"
    shutil.copy(old.folder / f"{uuid}.caf", archive)
    repository.adopt([archive], prefix="adopted")
    report = repository.migrate_store(old.url, new.url)
    assert (report.chunks, report.left) == (2, 1)
    repository.prune(grace_seconds=0, dry_run=False)
    assert archive.exists()
    assert repository.read("adopted/a/one") == FIRST["a/one"]


def test_a_store_is_forgotten_only_if_nothing_refers_to_it(
    repository: cafcat.Repository, old: Folder, new: Folder
) -> None:
    with pytest.raises(Conflict, match="store migrate"):
        repository.remove_store(old.url)
    repository.migrate_store(old.url, new.url)
    with pytest.raises(Conflict):
        repository.remove_store(old.url)
    repository.prune(grace_seconds=0, dry_run=False)
    repository.remove_store(old.url)
    assert urls(repository) == {new.url}
    with pytest.raises(NotFound):
        repository.remove_store(old.url)


@pytest.mark.slow
def test_four_readers_see_no_failure_while_a_store_moves_to_s3_and_back(
    repository: cafcat.Repository, old: Folder, bucket: Bucket
) -> None:
    stop, failed, reads = threading.Event(), [], [0] * 4

    def read(number: int) -> None:
        with cafcat.open(repository.settings, warn=failed.append) as reader:
            while not stop.is_set():
                try:
                    assert content(reader) == FILES
                    assert dict(reader.read_many(FILES)) == FILES
                    reads[number] += 1
                except Exception as error:
                    failed.append(error)
                    return

    readers = [threading.Thread(target=read, args=[number]) for number in range(4)]
    for reader in readers:
        reader.start()
    try:
        for here, there in ((old, bucket), (bucket, old)):
            before = list(reads)
            assert repository.migrate_store(here.url, there.url).chunks == 2
            assert repository.prune(grace_seconds=0, dry_run=False).objects == 2
            while any(now < was + 2 for now, was in zip(reads, before, strict=True)) and not failed:
                stop.wait(0.01)
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert failed == []
