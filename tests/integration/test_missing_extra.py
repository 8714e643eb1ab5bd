"""Where the libraries of a format are not installed, its chunks are neither damaged nor become something else."""

import sys
from collections.abc import Iterator

import pytest

import cafcat
from cafcat.errors import NotInstalled
from cafcat.formats.databundle import DATABUNDLE
from cafcat.formats.databundle.messages import messages
from cafcat.model import OnConflict
from tests.catalog_world import begin, sql
from tests.rebuild_world import World, leave_whole, local

__all__ = ["local"]

CONTENT = b"content" * 1000


@pytest.fixture
def without(local: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A catalog with a DataBundle chunk, half of which is dead; then protobuf is no more."""
    chunk = begin(local.repository, {"kept": CONTENT, "removed": CONTENT}, archive_format=DATABUNDLE)
    chunk.finish(OnConflict.REPLACE, lambda: None)
    local.repository.custody.remove(["removed"])
    messages.cache_clear()
    monkeypatch.setitem(sys.modules, "google.protobuf.any_pb2", None)
    yield local
    monkeypatch.undo()
    messages.cache_clear()


def chunks(repository: cafcat.Repository) -> list[tuple[str, str]]:
    return [(chunk.format, chunk.state) for chunk in repository.chunks()]


def test_files_are_read_all_the_same(without: World) -> None:
    assert without.repository.read("kept") == CONTENT


@pytest.mark.parametrize("level", ["index", "data"])
def test_verify_cannot_tell(without: World, level: str) -> None:
    report = without.repository.custody.verify(level=level)
    assert (report.damaged, report.unreadable) == (0, 1)
    [(kind, detail)] = sql(without.repository, "SELECT kind, detail FROM findings")
    assert kind == "unreadable"
    assert "google.protobuf" in detail


def test_no_chunk_becomes_one_of_another_format(without: World) -> None:
    custody = without.repository.custody
    custody.verify(level="data")
    for verb in (lambda: custody.repair(from_copies=True), lambda: custody.repack(max_unused=0.0)):
        with pytest.raises(NotInstalled, match=r"cafcat\[databundle\]"):
            verb()
    assert chunks(without.repository) == [("databundle", "committed")]


def test_rebuild_does_not_count_them_as_lost(without: World) -> None:
    with pytest.raises(NotInstalled, match=r"cafcat\[databundle\]"):
        without.rebuilt(accept_loss=True)


def test_recover_leaves_a_whole_chunk_for_who_can_read_it(local: World, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_whole(local.repository, {"a": CONTENT}, archive_format=DATABUNDLE)
    messages.cache_clear()
    with monkeypatch.context() as without_protobuf:
        without_protobuf.setitem(sys.modules, "google.protobuf.any_pb2", None)
        [message] = local.repository.custody.recover().failed
    messages.cache_clear()
    assert "google.protobuf" in message
    assert chunks(local.repository) == [("databundle", "writing")]
    assert local.repository.custody.recover().adopted == 1
    assert local.repository.read("a") == CONTENT
