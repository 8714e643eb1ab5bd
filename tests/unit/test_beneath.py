"""Files below a folder are opened without following links there."""

import os
import pickle
from pathlib import Path

import pytest

from cafcat.support.beneath import Beneath

FLAGS = os.O_RDONLY | os.O_NOFOLLOW


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "top/a/b").mkdir(parents=True)
    (tmp_path / "top/a/b/f").write_bytes(b"inside")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/f").write_bytes(b"outside")
    return f"{tmp_path}/top/"


def content(descriptor: int) -> bytes:
    with open(descriptor, "rb") as file:
        return file.read()


def test_files_and_folders(folder: str) -> None:
    beneath = pickle.loads(pickle.dumps(Beneath(folder)))  # noqa: S301 - our own
    assert content(beneath.open(f"{folder}a/b/f", FLAGS)) == b"inside"
    descriptor = beneath.open(f"{folder}a/b", FLAGS | os.O_DIRECTORY)
    assert os.listdir(descriptor) == ["f"]
    os.close(descriptor)
    with pytest.raises(FileNotFoundError):
        beneath.open(f"{folder}a/none", FLAGS)


@pytest.mark.parametrize("replaced", ["a", "a/b", "a/b/f"])
def test_a_link_is_not_followed(folder: str, replaced: str) -> None:
    os.rename(folder + replaced, folder + "moved")
    os.symlink(f"{folder}../out" + ("/f" if replaced == "a/b/f" else ""), folder + replaced)
    with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
        Beneath(folder).open(f"{folder}a/b/f" if replaced != "a" else f"{folder}a/f", FLAGS)


def test_the_folder_itself_may_be_a_link(folder: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    assert content(Beneath(f"{tmp_path}/link/").open(f"{tmp_path}/link/a/b/f", FLAGS)) == b"inside"


def test_a_folder_that_is_replaced_while_it_is_open(folder: str) -> None:
    """The next file still comes from the folder that was opened, not from the one that the link leads to."""
    beneath = Beneath(folder)
    assert content(beneath.open(f"{folder}a/b/f", FLAGS)) == b"inside"
    os.rename(f"{folder}a/b", f"{folder}moved")
    os.symlink(f"{folder}../out", f"{folder}a/b")
    assert content(beneath.open(f"{folder}a/b/f", FLAGS)) == b"inside"


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors by /proc")
def test_no_descriptor_is_left(folder: str) -> None:
    before = os.listdir("/proc/self/fd")
    beneath = Beneath(folder)
    os.close(beneath.open(f"{folder}a/b/f", FLAGS))
    os.close(beneath.open(f"{folder}a", FLAGS))
    with pytest.raises(OSError, match="No such file"):
        beneath.open(f"{folder}a/none/f", FLAGS)
    del beneath
    assert os.listdir("/proc/self/fd") == before
