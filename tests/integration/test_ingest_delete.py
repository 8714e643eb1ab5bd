"""`ingest --delete`: which files are removed, and which stay."""

import os
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

import cafcat
from cafcat.errors import InvalidInput, NotConfirmed
from cafcat.events import ChangeFound, Event, SourceChange
from cafcat.model import ProblemKind
from cafcat.native.folder import FolderLister, ListedFolder
from cafcat.operations.removing import Removing
from cafcat.reports import IngestReport
from cafcat.sources.local.walk import Walk
from tests.worlds.listeners import Heard
from tests.worlds.servers.s3_server import S3Server

NAMES = ("a/1", "a/2", "a/3", "b/1", "b/2", "c/d/1", "top")


class Changes(Heard):
    """Keeps the changes that an ingest finds, too."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[tuple[str, str]] = []

    def emit(self, event: Event) -> None:
        super().emit(event)
        if isinstance(event, ChangeFound):
            self.changes.append((event.change.value, event.path))


@pytest.fixture
def repository(local: cafcat.Repository) -> cafcat.Repository:
    return local


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "tree", *NAMES)
    return tmp_path / "tree"


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(f"{folder.name}/{name}".encode())


def remove(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).unlink()


def paths(repository: cafcat.Repository) -> list[str]:
    return [location.path for location in repository.list()]


def left(*gone: str) -> list[str]:
    return [f"tree/{name}" for name in NAMES if name not in gone]


def test_files_that_are_gone_are_removed_by_the_run(
    repository: cafcat.Repository, tree: Path, database_url: str
) -> None:
    repository.ingest(["tree"])
    remove(tree, "a/2", "top")
    write(tree, "new")
    report = repository.ingest(["tree"], delete=True)
    assert (report.files_added, report.files_gone, report.files_removed) == (1, 2, 2)
    assert paths(repository) == sorted([*left("a/2", "top"), "tree/new"])
    assert repository.session.catalog.reports.findings() == []
    assert repository.runs(1)[0].files_removed == 2
    with psycopg.connect(database_url) as connection:
        query = "SELECT file_path, ended_by, ended_by_run_id FROM cafcat_ops.file_history WHERE ended_by <> ''"
        rows = connection.execute(query).fetchall()
    assert sorted(rows) == [(path, "removed", report.run) for path in ("tree/a/2", "tree/top")]
    assert repository.undelete(["tree/top"]).files == 1


def test_an_ingest_without_delete_only_lists(repository: cafcat.Repository, tree: Path) -> None:
    repository.ingest(["tree"])
    remove(tree, "a/2", "c/d/1")
    heard = Changes()
    report = repository.with_progress(heard).ingest(["tree"], list_changes=True)
    assert heard.changes == [("gone", "tree/a/2"), ("gone", "tree/c/d/1")]
    assert (report.files_gone, report.files_removed) == (2, 0)
    assert paths(repository) == left()


def test_files_of_other_sources_stay(
    repository: cafcat.Repository, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in the same folder of the catalog, and if the other source has been ingested before."""
    repository.ingest(["tree"])
    write(tmp_path / "other" / "tree", "a/other")
    monkeypatch.chdir(tmp_path / "other")
    repository.ingest(["tree"], delete=True, max_delete=0)
    assert "tree/a/other" in paths(repository)
    monkeypatch.chdir(tmp_path)
    assert repository.ingest(["tree"], delete=True, max_delete=0).files_removed == 0
    assert paths(repository) == sorted([*left(), "tree/a/other"])


def test_a_source_without_a_folder_before_its_names(
    repository: cafcat.Repository, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of such a source is the whole catalog."""
    write(tmp_path / "kept", "1", "2")
    repository.ingest(["kept"])
    monkeypatch.chdir(tree)
    repository.ingest(["."])
    remove(tree, "a/1", "top")
    assert repository.ingest(["."], delete=True).files_removed == 2
    assert paths(repository) == ["a/2", "a/3", "b/1", "b/2", "c/d/1", "kept/1", "kept/2"]


def test_files_that_a_filter_excludes_stay(repository: cafcat.Repository, tree: Path) -> None:
    repository.ingest(["tree"])
    remove(tree, "a/1", "a/2", "c/d/1")
    report = repository.ingest(["tree"], exclude=["/a/", "top"], delete=True)
    assert report.files_removed == 1
    assert paths(repository) == left("c/d/1")
    report = repository.ingest(["tree"], include=["2"], delete=True)
    assert (report.files_removed, paths(repository)) == (1, left("c/d/1", "a/2"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read every folder")
def test_files_below_an_unreadable_folder_stay(repository: cafcat.Repository, tree: Path) -> None:
    repository.ingest(["tree"])
    remove(tree, "b/1")
    (tree / "a").chmod(0)
    try:
        report = repository.ingest(["tree"], delete=True)
    finally:
        (tree / "a").chmod(0o755)
    assert (report.files_failed, report.files_removed) == (1, 1)
    assert paths(repository) == left("b/1")


def test_a_file_of_cafcat_itself_is_not_gone(repository: cafcat.Repository, tree: Path, tmp_path: Path) -> None:
    """A folder that was ingested before it became a store is not listed any more."""
    repository.ingest(["tree"])
    remove(tree, "b/1")
    with cafcat.open(
        database_url=repository.settings.database_url, home=tmp_path / "home", store=str(tree / "a")
    ) as other:
        report = other.ingest(["tree"], delete=True)
    assert (report.files_skipped, report.files_removed) == (1, 1)
    assert paths(repository) == left("b/1")


def test_a_link_in_place_of_a_file(repository: cafcat.Repository, tree: Path) -> None:
    """The source has no file of this path any more."""
    repository.ingest(["tree"])
    remove(tree, "top")
    (tree / "top").symlink_to("a/1")
    heard = Changes()
    assert repository.with_progress(heard).ingest(["tree"], delete=True).files_removed == 1
    assert [problem.kind for problem in heard.problems] == [ProblemKind.SYMLINK]
    assert paths(repository) == left("top")


def test_files_below_a_link_in_place_of_a_folder(repository: cafcat.Repository, tree: Path) -> None:
    """Without follow_symlinks, the source has no file below the link. A source that is a link is followed."""
    outside = tree.parent / "outside"
    write(outside, "1", "d/2")
    (tree / "b" / "linked").symlink_to(outside)
    repository.ingest(["tree"], follow_symlinks=True)
    assert {"tree/b/linked/1", "tree/b/linked/d/2"} < set(paths(repository))
    assert repository.ingest(["tree"], follow_symlinks=True, delete=True).files_removed == 0
    assert repository.ingest(["tree"], delete=True).files_removed == 2
    assert paths(repository) == left()
    tree.rename(tree.parent / "moved")
    tree.symlink_to("moved")
    assert repository.ingest(["tree"], delete=True).files_removed == 0


def test_nothing_is_removed_if_too_many_files_are_gone(repository: cafcat.Repository, tree: Path) -> None:
    """The new files are committed all the same: an empty folder may be a disk that is not mounted."""
    repository.ingest(["tree"])
    remove(tree, *NAMES)
    write(tree, "new")
    with pytest.raises(NotConfirmed, match=r"7 of 7 files from tree are gone, more than 50 %"):
        repository.ingest(["tree"], delete=True)
    assert paths(repository) == sorted([*left(), "tree/new"])
    assert repository.runs(1)[0].state == "failed"
    heard = Changes()
    report = repository.with_progress(heard).ingest(["tree"], delete=True, dry_run=True, list_changes=True)
    assert (report.files_gone, report.files_removed, len(heard.warnings)) == (7, 0, 1)
    assert [path for change, path in heard.changes if change == SourceChange.GONE] == left()
    assert repository.ingest(["tree"], delete=True, max_delete=100).files_removed == 7
    assert paths(repository) == ["tree/new"]


def test_one_source_of_several_with_too_many_files(repository: cafcat.Repository, tree: Path) -> None:
    write(tree.parent / "second", "1", "2")
    repository.ingest(["tree", "second"])
    remove(tree, "a/1")
    remove(tree.parent / "second", "1", "2")
    for sources in (["tree", "second"], ["second", "tree"]):
        with pytest.raises(NotConfirmed, match="2 of 2 files from second"):
            repository.ingest(sources, delete=True)
    assert paths(repository) == sorted([*left(), "second/1", "second/2"])


def test_a_file_that_changed_meanwhile_stays(
    repository: cafcat.Repository, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another ingest of the same source has a new version; the other file that is gone is removed."""
    repository.ingest(["tree"])
    remove(tree, "a/1", "a/2")
    original = Removing.remove_versions

    def late(removing: Removing, *arguments: object) -> int:
        monkeypatch.setattr(Removing, "remove_versions", original)
        write(tree, "a/1")
        repository.ingest(["tree"])
        return original(removing, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Removing, "remove_versions", late)
    report = repository.ingest(["tree"], delete=True)
    assert (report.files_gone, report.files_removed) == (2, 1)
    assert paths(repository) == left("a/2")


def test_a_file_that_appears_during_the_listing_stays(
    repository: cafcat.Repository, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.ingest(["tree"])
    remove(tree, "a/1", "a/2")
    names = Walk._names

    def without(self: Walk, folder: int, path: str) -> list[str]:
        found = names(self, folder, path)
        if path == "tree/a/":
            write(tree, "a/1")
        return found

    listed = FolderLister.list

    def listed_without(self: FolderLister, folder: int, prefix: bytes, most_path_bytes: int) -> ListedFolder | None:
        found = listed(self, folder, prefix, most_path_bytes)
        if prefix == b"tree/a/":
            write(tree, "a/1")
        return found

    monkeypatch.setattr(Walk, "_names", without)
    monkeypatch.setattr(FolderLister, "list", listed_without)
    assert repository.ingest(["tree"], delete=True).files_removed == 1
    assert paths(repository) == left("a/2")


def test_an_interrupted_ingest_removes_nothing(repository: cafcat.Repository, tree: Path) -> None:
    class Stopping(Changes):
        stopping = True

    repository.ingest(["tree"])
    remove(tree, "a/1")
    report = repository.with_progress(Stopping()).ingest(["tree"], delete=True)
    assert report.interrupted
    assert paths(repository) == left()


def test_a_single_file_is_listed_as_new(repository: cafcat.Repository, tree: Path, database_url: str) -> None:
    heard = Changes()
    repository.with_progress(heard).ingest(["tree/top"], list_changes=True)
    assert heard.changes == [("added", "tree/top")]
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT url FROM sources").fetchall() == [(f"{tree.parent}/",)]


def test_a_source_that_is_no_folder_is_refused(repository: cafcat.Repository, tree: Path) -> None:
    with pytest.raises(InvalidInput, match="tree/top is no folder or bucket"):
        repository.ingest(["tree", "tree/top"], delete=True)
    assert paths(repository) == []


def test_names_that_sort_between_folders(
    repository: cafcat.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["a!", "a-b/1", "a/1", "a/b/1", "a0", "ä", "b\n/1", "b\\n/1", "日/1"]
    write(tmp_path / "tree", *names)
    monkeypatch.chdir(tmp_path)
    repository.ingest(["tree"])
    for name in names:
        remove(tmp_path / "tree", name)
        report = repository.ingest(["tree"], delete=True, max_delete=100)
        assert report.files_removed == 1, name
    assert paths(repository) == []


@pytest.mark.usefixtures("s3_proxy_environment")
def test_objects_of_a_bucket(
    repository: cafcat.Repository,
    s3_server: S3Server,
    make_bucket: Callable[[], str],
) -> None:
    bucket = make_bucket()
    client = s3_server.client()
    for key in ("photos/1", "photos/2", "photos/3", "photos-old/1", "top"):
        client.put_object(Bucket=bucket, Key=key, Body=key.encode())
    report: IngestReport = repository.ingest([f"s3://{bucket}"], prefix="mine")
    assert report.files_added == 5
    for key in ("photos/2", "photos-old/1"):
        client.delete_object(Bucket=bucket, Key=key)
    assert repository.ingest([f"s3://{bucket}/photos/"], prefix="mine", delete=True).files_removed == 1
    assert repository.ingest([f"s3://{bucket}"], delete=True).files_removed == 0, "other names"
    assert repository.ingest([f"s3://{bucket}"], prefix="mine", delete=True).files_removed == 1
    assert [path for path in paths(repository) if path.startswith("mine/")] == [
        "mine/photos/1",
        "mine/photos/3",
        "mine/top",
    ]
