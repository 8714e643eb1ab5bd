"""Permissions and owners that cafcat changes, in folders where another user may make links."""

import os
from pathlib import Path

import pytest

from cafcat.stores.local.store import LocalStore
from cafcat.support.private import close_home, close_to_others, let_enter

NOBODY = 65534
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def put(chunks: Path, key: str) -> None:
    """Write an object into the store of a home."""
    upload = LocalStore(chunks, is_private=True).create(key)
    upload.write(b"data")
    upload.commit()


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder that other users can write."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o775)
    return folder


def test_a_folder_behind_a_link_keeps_its_permissions(tmp_path: Path, shared: Path) -> None:
    link = tmp_path / "chunks"
    link.symlink_to(shared)
    close_to_others(link)
    close_home(link, is_default=True)
    assert mode_of(shared) == 0o775
    close_to_others(shared)
    assert mode_of(shared) == 0o700


@AS_ROOT
def test_root_closes_no_folder_of_another_user(shared: Path) -> None:
    os.chown(shared, NOBODY, NOBODY)
    close_to_others(shared)
    assert mode_of(shared) == 0o775


@AS_ROOT
def test_link_of_another_user_opens_no_folder(tmp_path: Path, shared: Path) -> None:
    shared.chmod(0o700)
    link = tmp_path / "home"
    link.symlink_to(shared)
    let_enter(link)
    assert mode_of(shared) == 0o711
    shared.chmod(0o700)
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(PermissionError):
        let_enter(link)
    assert mode_of(shared) == 0o700


@AS_ROOT
def test_objects_belong_to_the_owner_of_their_folder(tmp_path: Path) -> None:
    chunks = tmp_path / "home/chunks"
    chunks.mkdir(parents=True)
    for path in (chunks.parent, chunks):
        os.chown(path, NOBODY, NOBODY)
    put(chunks, "journal/a.jsonl")
    assert {(path.name, path.stat().st_uid) for path in chunks.rglob("*")} == {
        ("journal", NOBODY),
        ("a.jsonl", NOBODY),
    }


@AS_ROOT
def test_object_behind_a_link_keeps_its_owner(tmp_path: Path, shared: Path) -> None:
    """The owner of a home has made a link to a folder of root."""
    chunks = tmp_path / "home/chunks"
    chunks.mkdir(parents=True)
    (chunks / "journal").symlink_to(shared)
    for path in (chunks.parent, chunks):
        os.chown(path, NOBODY, NOBODY)
    put(chunks, "journal/a.jsonl")
    put(chunks, "journal/b/a.jsonl")
    assert {path.stat().st_uid for path in [shared, *shared.rglob("*")]} == {0}
