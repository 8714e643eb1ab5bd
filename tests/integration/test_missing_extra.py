"""Without the libraries of a format, its chunks do not count as damaged, and stay unchanged."""

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import cafcat
from cafcat.errors import NotInstalled
from cafcat.formats.base import Format
from cafcat.formats.caf.format import CAF
from cafcat.formats.databundle import DATABUNDLE
from cafcat.formats.databundle.messages import messages
from cafcat.model import Finding, OnConflict
from cafcat.progress import Progress
from cafcat.writing.chunk import OpenChunk
from tests.worlds.archives.damage import flip
from tests.worlds.catalog_world import begin, sql
from tests.worlds.listeners import Following, Heard
from tests.worlds.rebuild_world import World, leave_whole, local

__all__ = ["local"]

CONTENT = b"content" * 1000


@pytest.fixture
def without_protobuf(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """A function that removes protobuf."""

    def remove() -> None:
        messages.cache_clear()
        monkeypatch.setitem(sys.modules, "google.protobuf.any_pb2", None)

    yield remove
    monkeypatch.undo()
    messages.cache_clear()


@pytest.fixture
def without(local: World, without_protobuf: Callable[[], None]) -> cafcat.Repository:
    """A catalog with a DataBundle chunk, without protobuf."""
    pack(local.repository, ["kept", "other"], DATABUNDLE)
    without_protobuf()
    return local.repository


def pack(repository: cafcat.Repository, names: Sequence[str], archive_format: Format) -> OpenChunk:
    chunk = begin(repository, dict.fromkeys(names, CONTENT), archive_format=archive_format)
    chunk.finish(OnConflict.REPLACE, Progress())
    return chunk


def spoilt(repository: cafcat.Repository, names: Sequence[str], archive_format: Format) -> None:
    """Write a chunk with a damaged index and undamaged files."""
    key = f"{pack(repository, names, archive_format).uuid}{archive_format.suffix}"
    path = Path(str(repository.settings.store).removeprefix("file://")) / key
    flip(path, path.stat().st_size - 1)


def chunks(repository: cafcat.Repository) -> list[tuple[str, str]]:
    return sql(repository, "SELECT format, state FROM chunks ORDER BY id")


def test_files_are_read_without_the_library(without: cafcat.Repository) -> None:
    assert without.read("kept") == CONTENT


@pytest.mark.parametrize("level", ["index", "data"])
def test_verify_gives_no_verdict(without: cafcat.Repository, level: str) -> None:
    told: list[Sequence[Finding]] = []
    report = without.with_progress(Following(on=lambda one: told.append(one.findings))).verify(level=level)
    assert (report.ok, report.damaged, report.unreadable) == (0, 0, 1)
    [[finding]] = told
    assert finding.kind == "unreadable"
    assert "google.protobuf" in finding.detail
    assert sql(without, "SELECT count(*) FROM verifications") == [(0,)]  # other machines may have the library


def test_earlier_verdict_is_kept(local: World, without_protobuf: Callable[[], None]) -> None:
    spoilt(local.repository, ["a"], DATABUNDLE)
    local.repository.verify(level="index")
    without_protobuf()
    local.repository.verify(level="index")
    assert [found.verdict for found in local.repository.session.catalog.verification.damaged()] == ["damaged"]


def test_repair_and_repack_leave_chunks_of_a_missing_format(
    local: World, without_protobuf: Callable[[], None]
) -> None:
    custody = local.repository
    spoilt(local.repository, ["a", "b"], DATABUNDLE)
    spoilt(local.repository, ["c", "d"], CAF)
    custody.verify(level="index")
    without_protobuf()
    heard = Heard()
    report = custody.with_progress(heard).repair(from_copies=True, dry_run=False)
    assert (report.chunks, report.chunks_mended, report.chunks_left) == (2, 1, 1)
    [message] = heard.warnings
    assert "google.protobuf" in message
    expected = [("databundle", "committed"), ("caf", "retired"), ("caf", "committed")]
    assert chunks(local.repository) == expected
    custody.rm(["a", "c"])
    [message] = custody.repack(max_unused=0.0, dry_run=False).failed
    assert "google.protobuf" in message
    assert chunks(local.repository) == [*expected[:2], ("caf", "retired"), ("caf", "committed")]


def test_repack_leaves_chunks_of_an_unknown_format(local: World) -> None:
    for names in (["a", "b"], ["c", "d"]):
        pack(local.repository, names, CAF)
    local.repository.rm(["a", "c"])
    sql(local.repository, "UPDATE chunks SET format = 'somebodys' WHERE id = (SELECT min(id) FROM chunks)")
    [message] = local.repository.repack(max_unused=0.0, dry_run=False).failed
    assert "there is no format 'somebodys'" in message
    assert [state for _, state in chunks(local.repository)] == ["committed", "retired", "committed"]


def test_rebuild_does_not_count_them_as_lost(local: World, without: cafcat.Repository) -> None:
    assert chunks(without) == [("databundle", "committed")]
    with pytest.raises(NotInstalled, match=r"\.\[databundle\]"):
        local.rebuilt(accept_loss=True)


def test_recover_leaves_a_whole_chunk_of_a_missing_format(
    local: World, without_protobuf: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_whole(local.repository, {"a": CONTENT}, archive_format=DATABUNDLE)
    without_protobuf()
    [message] = local.repository.recover().failed
    assert "google.protobuf" in message
    assert chunks(local.repository) == [("databundle", "writing")]
    monkeypatch.undo()
    messages.cache_clear()
    assert local.repository.recover().adopted == 1
    assert local.repository.read("a") == CONTENT
