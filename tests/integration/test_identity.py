"""A catalog writes only into its own stores.

Catalogs that share a store on purpose leave each other's chunks alone, and are rebuilt separately.
"""

import json
import shutil
import threading
from pathlib import Path
from uuid import UUID

import pytest

import cafcat
from cafcat.catalog.stores.identity import Identities
from cafcat.errors import CafcatError, Conflict, InvalidInput, Locked, NotFound, StoreFailed, Unavailable
from cafcat.operations import joining
from cafcat.operations.joining import join_store
from cafcat.stores.local.store import LocalStore
from cafcat.stores.marker import Marker, catalogs_of, marker_key, read_marker, remove_marker, write_marker
from tests.worlds.catalog_world import commit, sql
from tests.worlds.listeners import Heard, follow
from tests.worlds.rebuild_world import World, leave_whole, local, world

__all__ = ["local", "world"]


def identity_of(repository: cafcat.Repository) -> UUID:
    [(uuid,)] = sql(repository, "SELECT uuid FROM catalog_identity")
    assert isinstance(uuid, UUID)
    return uuid


def ingest(repository: cafcat.Repository, folder: Path, files: dict[str, bytes], **options: bool) -> int:
    """Ingest files below a new folder, and return the number of added files."""
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    listed = folder / "listed"
    listed.write_text("".join(f"{path}\n" for path in files))
    return (
        follow(repository, options)
        .ingest([str(folder)], exclude=["listed"], prefix=folder.name, **options)
        .files_added
    )


def live(repository: cafcat.Repository) -> dict[str, bytes]:
    return {location.path.rpartition("/")[2]: repository.read(location.path) for location in repository.list()}


def marker_of(world: World, repository: cafcat.Repository) -> Marker:
    found = read_marker(world.objects, identity_of(repository))
    assert found is not None
    return found


def test_the_first_ingest_writes_the_marker_and_later_ones_read_it(world: World, tmp_path: Path) -> None:
    ingest(world.repository, tmp_path / "a", {"x": b"1"})
    marker = marker_of(world, world.repository)
    assert (marker.has_unnamed, marker.database.startswith("postgresql://")) == (True, True)
    assert sql(world.repository, "SELECT uuid FROM stores") == [(marker.store,)]
    ingest(world.repository, tmp_path / "b", {"y": b"2"})
    assert marker_of(world, world.repository) == marker
    assert world.rebuilt()[1].foreign_objects == 0
    report = world.repository.recover()
    assert (report.unknown_objects, report.unknown_uploads, report.failed) == (0, 0, ())


def test_an_ingest_with_a_marker_looks_at_the_store_once(
    local: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(local.repository, tmp_path / "a", {"x": b"1"})
    asked: list[str] = []
    store = type(local.objects)
    for name in ("read", "stat", "list", "stream", "uploads"):
        real = getattr(store, name)

        def counted(self: object, *args: object, real: object = real, name: str = name) -> object:
            asked.append(name)
            return real(self, *args)  # type: ignore[operator]

        monkeypatch.setattr(store, name, counted)
    assert local.repository.ingest([str(tmp_path / "a")], prefix="a").files_unchanged >= 1
    assert asked == ["read"]  # the marker, which also shows that the store is where its URL points
    asked.clear()
    list(local.repository.list())
    local.repository.read(next(local.repository.list()).path)
    assert asked == ["read"]


def test_another_catalog_is_refused_before_it_writes_anything(world: World, tmp_path: Path) -> None:
    ingest(world.repository, tmp_path / "a", {"x": b"1"})
    before = sorted(found.key for found in world.objects.list())
    other = world.empty()
    for dry_run in (True, False):
        with pytest.raises(Conflict, match="belongs to catalog") as caught:
            ingest(other, tmp_path / "b", {"y": b"2"}, dry_run=dry_run)
        assert str(identity_of(world.repository)) in caught.value.message
        for word in ("cafcat rebuild", "cafcat restore", "cafcat adopt", "--join-store"):
            assert word in (caught.value.hint or "")
    with pytest.raises(Conflict, match="belongs to catalog"):
        other.backup()
    assert sorted(found.key for found in world.objects.list()) == before
    assert sql(other, "SELECT count(*) FROM chunks") == [(0,)]


def test_copies_and_repacks_write_only_to_stores_of_the_catalog(local: World, tmp_path: Path) -> None:
    elsewhere = str(tmp_path / "elsewhere")
    other = local.open(str(local.empty().settings.database_url), elsewhere)
    ingest(other, tmp_path / "b", {"y": b"2"})
    ingest(local.repository, tmp_path / "a", {"x": b"1"})
    with pytest.raises(Conflict, match="belongs to catalog"):
        local.repository.copy(to=elsewhere)
    report = local.repository.copy(to=elsewhere, join_store=True)
    assert report.copied == 1
    assert set(catalogs_of(LocalStore(tmp_path / "elsewhere"))) == {
        identity_of(other),
        identity_of(local.repository),
    }
    [(chunk,)] = sql(local.repository, "SELECT uuid::text FROM chunks")
    remove_marker(local.objects, identity_of(local.repository))
    write_marker(local.objects, marker_of_stranger(local))
    report_of_repack = local.repository.repack(chunks=[chunk])
    assert "belongs to catalog" in report_of_repack.failed[0]
    assert local.repository.repack(chunks=[chunk], join_store=True).chunks_retired == 1


def marker_of_stranger(world: World) -> Marker:
    identities = Identities(world.empty().session.catalog._connection)
    catalog = identities.of("").catalog
    return Marker(catalog, catalog, "2026-11-21T10:00:00.000000Z", True, "stranger", "postgresql://db/other")


def test_store_of_an_earlier_version_accepts_only_its_own_catalog(world: World, tmp_path: Path) -> None:
    """Chunks of that version have no marker, and their journal records have no catalog."""
    commit(world.repository, {"old": b"old"})
    forget_names(world)
    other = world.empty()
    with pytest.raises(Conflict, match="has chunks that are not in this catalog"):
        ingest(other, tmp_path / "b", {"y": b"2"})
    ingest(world.repository, tmp_path / "a", {"x": b"1"})
    assert marker_of(world, world.repository).has_unnamed
    rebuilt, report = world.rebuilt()
    assert (report.catalog, report.damages) == (identity_of(world.repository), ())
    assert live(rebuilt).keys() == {"old", "x"}


def forget_names(world: World) -> None:
    """Rewrite the journal records as an earlier version wrote them."""
    from tests.integration.test_rebuild import record_of

    for key in world.journal():
        documents = [json.loads(line) for line in world.read(key).splitlines()[:-1]]
        documents[0].pop("catalog")
        world.write(key, record_of(*documents))


def test_a_chunk_that_is_being_written_by_an_earlier_version_is_no_stranger(local: World, tmp_path: Path) -> None:
    leave_whole(local.repository, {"half": b"half"})
    sql(local.repository, "UPDATE chunks SET lease_expires_at = now() + interval '1h', lease_owner = 'far:1:x'")
    ingest(local.repository, tmp_path / "a", {"x": b"1"})
    assert marker_of(local, local.repository).has_unnamed


def test_a_disk_that_is_not_mounted_is_not_written_to(local: World, tmp_path: Path) -> None:
    ingest(local.repository, tmp_path / "a", {"x": b"1"})
    store = tmp_path / "store"
    store.rename(tmp_path / "unmounted")
    store.mkdir()
    with pytest.raises(Unavailable, match="is its disk mounted"):
        ingest(local.repository, tmp_path / "b", {"y": b"2"})
    assert list(store.iterdir()) == []


def test_lost_marker_keeps_the_identity_of_the_store(local: World, tmp_path: Path) -> None:
    """The next ingest writes a lost marker again."""
    ingest(local.repository, tmp_path / "a", {"x": b"1"})
    marker = marker_of(local, local.repository)
    local.objects.delete(marker_key(marker.catalog))
    ingest(local.repository, tmp_path / "b", {"y": b"2"})
    assert marker_of(local, local.repository).store == marker.store


def test_a_copy_of_a_store_gets_an_identity_of_its_own(local: World, tmp_path: Path) -> None:
    """A store was copied with its marker. A rebuild misses each of the two if it is not named."""
    ingest(local.repository, tmp_path / "a", {"x": b"1"})
    copied = tmp_path / "copied"
    shutil.copytree(tmp_path / "store", copied)
    other = local.at(str(copied))
    assert ingest(other, tmp_path / "b", {"y": b"2"}, dry_run=True) == 1
    assert read_marker(LocalStore(copied), identity_of(other)) == marker_of(local, other)
    ingest(other, tmp_path / "b", {"y": b"2"})
    new = read_marker(LocalStore(copied), identity_of(other))
    assert new is not None
    assert new == marker_of(local, other)._replace(store=new.store) != marker_of(local, other)
    assert dict(sql(other, "SELECT uuid, url FROM stores"))[new.store] == LocalStore(copied).url
    ingest(local.repository, tmp_path / "c", {"z": b"3"})
    ingest(other, tmp_path / "d", {"u": b"4"})
    assert read_marker(LocalStore(copied), identity_of(other)) == new
    urls = (local.objects.url, LocalStore(copied).url)
    for url in urls:
        report = local.rebuilt(url)[1]
        assert not report.written
        missing = [damage for damage in report.damages if (set(urls) - {url}).pop() in str(damage)]
        assert len(missing) == 1
    complete, report = local.rebuilt(*urls)
    assert report.written
    assert live(complete) == {"x": b"1", "y": b"2", "z": b"3", "u": b"4"}


def test_a_store_under_a_second_name_keeps_its_identity(local: World, tmp_path: Path) -> None:
    ingest(local.repository, tmp_path / "a", {"x": b"1"})
    marker = marker_of(local, local.repository)
    (tmp_path / "link").symlink_to(tmp_path / "store")
    linked = local.at(str(tmp_path / "link"))
    ingest(linked, tmp_path / "b", {"y": b"2"})
    assert marker_of(local, linked) == marker


def test_a_store_that_was_moved_by_hand_is_no_copy(local: World, tmp_path: Path) -> None:
    ingest(local.repository, tmp_path / "a", {"x": b"1"})
    (tmp_path / "store").rename(tmp_path / "moved")
    moved = local.at(str(tmp_path / "moved"))
    with pytest.raises(Unavailable, match="cannot find the store") as raised:
        ingest(moved, tmp_path / "b", {"y": b"2"})
    assert "cafcat store move" in (raised.value.hint or "")


def test_at_most_one_of_two_first_writers_continues(local: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both writers see no marker, and then write their own."""
    others = [local.repository, local.empty()]
    both = threading.Barrier(2)
    real = joining.write_marker

    def written(store: LocalStore, marker: Marker) -> None:
        both.wait(60)
        real(store, marker)

    monkeypatch.setattr(joining, "write_marker", written)
    errors: list[CafcatError] = []

    def join(repository: cafcat.Repository) -> None:
        try:
            join_store(repository.session, repository.session.stores[local.store])
        except CafcatError as error:
            errors.append(error)

    threads = [threading.Thread(target=join, args=[repository]) for repository in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {type(error) for error in errors} == {Locked}
    assert len(catalogs_of(local.objects)) == 2 - len(errors)


@pytest.fixture
def joined(world: World, tmp_path: Path) -> cafcat.Repository:
    """A second catalog over one store, joined on purpose. Both have packed, removed and replaced files."""
    other = world.empty()
    ingest(world.repository, tmp_path / "a", {"x": b"1", "gone": b"1"})
    ingest(other, tmp_path / "b", {"x": b"2", "gone": b"2"}, join_store=True)
    ingest(other, tmp_path / "b", {"x": b"22"})
    ingest(world.repository, tmp_path / "a", {"z": b"3"})
    for repository in (world.repository, other):
        removed = [location.path for location in repository.list() if location.path.endswith("/gone")]
        assert repository.rm(removed).files == 1
    return other


def test_two_catalogs_over_one_store_are_rebuilt_each_by_itself(world: World, joined: cafcat.Repository) -> None:
    both = {str(identity_of(world.repository)), str(identity_of(joined))}
    empty = world.empty()
    with pytest.raises(InvalidInput, match="2 catalogs wrote to these stores: ") as caught:
        empty.rebuild()
    assert all(f"{uuid} (since 20" in caught.value.message for uuid in both)
    assert "3 journal records, the last of 20" in caught.value.message
    assert caught.value.hint == f"choose one: cafcat rebuild {world.objects.url} --catalog UUID"
    with pytest.raises(NotFound, match="no catalog 00000000 wrote to these stores; the catalogs that did: "):
        empty.rebuild(catalog="00000000")
    assert sql(empty, "SELECT count(*) FROM chunks") == [(0,)]
    for repository in (world.repository, joined):
        rebuilt, report = world.rebuilt(catalog=str(identity_of(repository))[:8])
        assert (report.damages, report.adopted, report.unclaimed) == ((), (), ())
        assert report.catalog == identity_of(repository) == identity_of(rebuilt)
        assert rebuilt.compare(str(repository.settings.database_url)).equal
        assert live(rebuilt) == live(repository)


def test_a_chunk_without_a_record_in_a_shared_store_is_left_alone(world: World, joined: cafcat.Repository) -> None:
    """The chunk may belong to either catalog. A wrong one might remove it later."""
    orphan = leave_whole(joined, {"late": b"late"})
    rebuilt, report = world.rebuilt(catalog=str(identity_of(world.repository)))
    assert [str(uuid) for uuid in report.unclaimed] == [orphan]
    assert (report.adopted, "late" in live(rebuilt)) == ((), False)
    assert joined.recover().adopted == 1
    assert live(joined)["late"] == b"late"


def test_damage_in_the_journal_of_another_catalog_does_not_matter(world: World, joined: cafcat.Repository) -> None:
    theirs = [key for key in world.journal() if str(identity_of(joined)).encode() in world.read(key)]
    world.write(theirs[0], world.read(theirs[0])[:-5] + b"\n")
    _, report = world.rebuilt(catalog=str(identity_of(world.repository)))
    assert (report.written, report.damages) == (True, ())
    _, report = world.rebuilt(catalog=str(identity_of(joined)))
    assert (report.written, report.lost_count) == (False, 1)


def test_recover_and_prune_touch_nothing_of_the_other_catalog(
    local: World, joined_local: cafcat.Repository
) -> None:
    other = joined_local
    orphan = leave_whole(other, {"late": b"late"})
    record = f"journal/{7:020d}-11111111-1111-1111-1111-111111111111.jsonl"
    local.objects.create(record).write(b"half a record of the other catalog")
    other.backup()
    before = sorted(found.key for found in local.objects.list())
    uploads = list(local.objects.uploads())
    assert uploads == [record]
    report = local.repository.recover()
    assert (report.adopted, report.abandoned, report.objects_removed, report.uploads_removed) == (0, 0, 0, 0)
    local.repository.prune(grace_seconds=0)
    assert list(local.objects.uploads()) == uploads
    after = {found.key for found in local.objects.list()}
    theirs = {key for (key,) in sql(other, "SELECT object_key FROM chunks UNION SELECT object_key FROM backups")}
    assert theirs & set(before) <= after
    assert any(orphan in key for key in after)


@pytest.fixture
def joined_local(local: World, tmp_path: Path) -> cafcat.Repository:
    """A second catalog over one folder, joined on purpose."""
    other = local.empty()
    ingest(local.repository, tmp_path / "a", {"x": b"1"})
    ingest(other, tmp_path / "b", {"x": b"2"}, join_store=True)
    return other


def test_backups_of_a_shared_store_belong_to_their_catalogs(local: World, joined_local: cafcat.Repository) -> None:
    ours, theirs = local.repository.backup(), joined_local.backup()
    empty = local.empty()
    with pytest.raises(InvalidInput, match="has backups of 2 catalogs; the newest backup of each: ") as caught:
        empty.restore()
    assert f"{ours.object_key} of catalog {identity_of(local.repository)}" in caught.value.message
    assert f"{theirs.object_key} of catalog {identity_of(joined_local)}" in caught.value.message
    report = empty.restore(ours.object_key)
    assert (identity_of(empty), report.newer_records) == (identity_of(local.repository), 0)
    rebuilt, _ = local.rebuilt(catalog=str(identity_of(joined_local)))
    assert sql(rebuilt, "SELECT object_key FROM backups") == [(theirs.object_key,)]


def test_restored_catalog_can_ingest_at_once(local: World, tmp_path: Path) -> None:
    ingest(local.repository, tmp_path / "a", {"x": b"1"})
    local.repository.backup()
    empty = local.empty()
    empty.restore()
    assert identity_of(empty) == identity_of(local.repository)
    assert ingest(empty, tmp_path / "b", {"y": b"2"}) == 1


def test_a_catalog_that_had_joined_before_it_was_rebuilt_leaves_no_marker(local: World, tmp_path: Path) -> None:
    ingest(local.repository, tmp_path / "a", {"x": b"1"})
    empty = local.empty()
    join_store(empty.session, local.objects, allow_shared=True)
    assert len(catalogs_of(local.objects)) == 2
    assert empty.rebuild().catalog == identity_of(local.repository)
    assert catalogs_of(local.objects) == [identity_of(local.repository)]


class MarkerBecomesFolder(Heard):
    """Replaces a marker, which the rebuild has read, by a folder: it cannot be removed any more."""

    def __init__(self, marker: Path) -> None:
        super().__init__()
        self._marker = marker

    def begin(self, verb: str, *, files: int | None = None, size_bytes: int | None = None) -> None:
        if verb == "write the catalog":
            self._marker.unlink()
            self._marker.mkdir()


def test_a_marker_that_a_rebuild_cannot_remove_is_named(local: World, tmp_path: Path) -> None:
    ingest(local.repository, tmp_path / "a", {"x": b"1"})
    empty = local.empty()
    join_store(empty.session, local.objects, allow_shared=True)
    marker = Path(local.objects.locate(marker_key(identity_of(empty))))
    heard = MarkerBecomesFolder(marker)
    assert empty.with_progress(heard).rebuild().catalog == identity_of(local.repository)
    [warning] = heard.warnings
    assert "cannot remove a marker that is no longer used" in warning
    assert f"remove {marker}, or" in warning
    assert "journal" not in warning


def test_unnamed_catalog_in_a_shared_store_is_rebuilt(local: World, tmp_path: Path) -> None:
    """The catalog of an earlier version was lost, and then another one joined its store on purpose."""
    commit(local.repository, {"old": b"old"})
    forget_names(local)
    other = local.empty()
    ingest(other, tmp_path / "b", {"y": b"2"}, join_store=True)
    assert not marker_of(local, other).has_unnamed
    rebuilt, _ = local.rebuilt(catalog="unnamed")
    assert live(rebuilt) == {"old": b"old"}
    ingest(rebuilt, tmp_path / "c", {"z": b"3"}, join_store=True)
    assert marker_of(local, rebuilt).has_unnamed
    again, _ = local.rebuilt(catalog=str(identity_of(rebuilt)))
    assert live(again) == {"old": b"old", "z": b"3"}


def test_an_empty_catalog_over_a_full_store_is_known_as_lost(local: World, tmp_path: Path) -> None:
    assert local.repository.lost_catalog() is None
    commit(local.repository, {"old": b"old"})
    assert local.repository.lost_catalog() is None
    lost = local.empty().lost_catalog()
    assert lost is not None
    assert lost.message == f"the catalog is empty, but the store {local.objects.url} has chunks"
    assert "cafcat rebuild" in (lost.hint or "")
    ingest(local.repository, tmp_path / "a", {"x": b"1"})
    lost = local.empty().lost_catalog()
    assert lost is not None
    assert f"belongs to catalog {identity_of(local.repository)} (since 20" in lost.message
    unreachable = local.open(str(local.empty().settings.database_url), "s3://bucket-that-is-not-there")
    unreachable.session.stores[unreachable.settings.store] = _Failing(tmp_path)
    assert unreachable.lost_catalog() is None


class _Failing(LocalStore):
    def list(self, below: str = "") -> object:  # type: ignore[override]
        raise StoreFailed(f"no answer for {below}")


def test_a_store_that_cannot_be_written_to_stays_out_of_the_catalog(local: World, tmp_path: Path) -> None:
    other = local.at("/sys/cafcat")  # not even root can make a folder there
    with pytest.raises(StoreFailed, match="cannot create /sys/cafcat"):
        ingest(other, tmp_path / "a", {"a": b"a"})
    assert sql(other, "SELECT url FROM stores") == []
