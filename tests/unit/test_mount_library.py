"""Without its libraries, a mount says what to install."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cafcat.errors import NotInstalled
from cafcat.mount import mounting
from cafcat.mount.filesystem import Reports


def test_the_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mfusepy", None)
    with pytest.raises(NotInstalled, match=r"mfusepy, which is not installed; pip install '\.\[mount\]'"):
        mounting._library()


@pytest.fixture
def broken_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A mfusepy that does not find libfuse."""
    (tmp_path / "mfusepy.py").write_text("raise OSError('Unable to find libfuse')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mfusepy", raising=False)
    yield
    sys.modules.pop("mfusepy", None)


@pytest.mark.usefixtures("broken_library")
def test_libfuse_is_missing() -> None:
    with pytest.raises(NotInstalled, match="needs libfuse 2 or 3: Unable to find libfuse; install it"):
        mounting._library()


def test_the_device_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mfusepy.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mfusepy", raising=False)
    monkeypatch.setattr(mounting, "_DEVICE", str(tmp_path / "fuse"))
    with pytest.raises(NotInstalled, match="fuse, which is missing"):
        mounting._library()
    del sys.modules["mfusepy"]


def test_messages_are_not_repeated() -> None:
    heard: list[str] = []
    report = Reports(heard.append)
    for message in ("one", "two", "one"):
        report(message)
    assert heard == ["one", "two"]
