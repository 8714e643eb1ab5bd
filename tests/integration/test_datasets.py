"""Data sets over a repository and a snapshot: worker processes, damaged files, arguments."""

import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cafcat
from cafcat.datasets import PackedDataset, PackedStream
from cafcat.errors import Corrupt, InvalidInput, NotFound, Unavailable
from tests.worlds.archives.damage import flip
from tests.worlds.catalog_world import commit
from tests.worlds.places import Folder
from tests.worlds.sample_source import sample_source

FILES = {f"tree/n{n:03}": b"%d " % n * n for n in range(100)}


@pytest.fixture(params=["repository", "snapshot"])
def source(request: pytest.FixtureRequest, repository: cafcat.Repository, tmp_path: Path) -> Iterator[Any]:
    with sample_source(request.param, repository, FILES, tmp_path) as found:
        yield found


def length(path: str, content: bytes) -> tuple[str, int]:
    return path, len(content)


def share_of(work: tuple[PackedStream, int]) -> list[Any]:
    stream, epoch = work
    stream.set_epoch(epoch)
    return list(stream)


def batch_of(work: tuple[PackedDataset, list[int]]) -> list[Any]:
    dataset, numbers = work
    return dataset.__getitems__(numbers)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_worker_processes(source: Any, start: str) -> None:
    """The parent reads first, so that forked workers inherit its connections and open files."""
    dataset = PackedDataset(source, transform=length)
    assert dataset[3] == ("tree/n003", len(FILES["tree/n003"]))
    streams = [PackedStream(source, worker=n, workers=3, transform=length, block_samples=7) for n in range(3)]
    expected = [share_of((stream, 2)) for stream in streams]
    with multiprocessing.get_context(start).Pool(2) as pool:
        assert pool.map(share_of, [(stream, 2) for stream in streams]) == expected
        numbers = [5, 99, 5, -1, 0]
        [batch] = pool.map(batch_of, [(dataset, numbers)])
    assert batch == [length(path, FILES[path]) for path in (f"tree/n{n % 100:03}" for n in numbers)]
    assert sorted(sample for share in expected for sample in share) == [length(*item) for item in FILES.items()]


def test_without_shuffling_the_samples_have_the_order_of_the_chunks(source: Any) -> None:
    stream = PackedStream(source, shuffle=False, block_samples=7)
    places = [(source.locate(path).object_key, source.locate(path).start_byte) for path, _ in stream]
    assert places == sorted(places)
    assert len(places) == stream.sample_count == 100


def test_length_is_the_share_of_the_rank(source: Any) -> None:
    streams = [PackedStream(source, rank=rank, ranks=3) for rank in range(3)]
    assert [len(stream) for stream in streams] == [len(list(stream)) for stream in streams] == [33, 33, 34]
    assert [stream.sample_count for stream in streams] == [100] * 3
    assert len(PackedStream(source, rank=2, ranks=3, drop_uneven=True)) == 33
    assert [len(PackedStream(source, rank=2, ranks=3, worker=n, workers=4)) for n in range(4)] == [8, 9, 8, 9]


def test_each_iteration_is_the_next_epoch(source: Any) -> None:
    stream = PackedStream(source)
    first, second = list(stream), list(stream)
    assert first != second
    assert sorted(first) == sorted(second)
    iterator = iter(stream)  # an iteration that is left
    next(iterator)
    fourth = list(stream)
    stream.set_epoch(0)
    assert list(stream) == first
    stream.set_epoch(3)
    assert list(stream) == fourth


def test_a_part_of_the_files(source: Any) -> None:
    assert PackedDataset(source, prefix="tree/n007").paths[:] == ["tree/n007"]
    assert [path for path, _ in PackedStream(source, ["tree/n001", "./tree/n001"])] != []
    assert len(PackedDataset(source, prefix="nothing")) == 0
    assert list(PackedStream(source, [])) == []
    with pytest.raises(IndexError, match="there is no sample 100: there are 100"):
        PackedDataset(source)[100]


@pytest.mark.parametrize("kind", ["repository", "snapshot"])
def test_damaged_files(
    local: cafcat.Repository, folder: Folder, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    commit(local, FILES)
    [chunk] = folder.folder.glob("*.caf")
    flip(chunk, local.locate("tree/n050").start_byte)
    local.snapshot(tmp_path / "taken")
    source = local if kind == "repository" else cafcat.Snapshot(tmp_path / "taken")
    dataset = PackedDataset(source)
    for read in (lambda: dataset[50], lambda: dataset.__getitems__([1, 50]), lambda: list(PackedStream(source))):
        with pytest.raises(Corrupt, match="tree/n050"):
            read()
    others = sorted(item for item in FILES.items() if item[0] != "tree/n050")
    assert sorted(PackedStream(source, skip_errors=True)) == others
    assert "a sample is left out" in caplog.text
    assert "tree/n050" in caplog.text


def test_a_removed_chunk_in_a_snapshot(local: cafcat.Repository, folder: Folder, tmp_path: Path) -> None:
    """A snapshot may be older than the prune of a chunk: each of its files is an error that names it."""
    commit(local, dict(list(FILES.items())[:50]))
    [chunk] = folder.folder.glob("*.caf")
    commit(local, dict(list(FILES.items())[50:]))
    local.snapshot(tmp_path / "taken")
    chunk.unlink()
    with cafcat.Snapshot(tmp_path / "taken") as snapshot:
        with pytest.raises(NotFound, match="tree/n003"):
            PackedDataset(snapshot).__getitems__([60, 3, 1])
        # A file without bytes needs no chunk.
        found = [("tree/n000", b""), *sorted(FILES.items())[50:]]
        assert sorted(PackedStream(snapshot, skip_errors=True)) == found


def test_a_folder_that_is_gone_is_not_skipped(local: cafcat.Repository, folder: Folder, tmp_path: Path) -> None:
    commit(local, FILES)
    local.snapshot(tmp_path / "taken")
    folder.folder.rename(tmp_path / "elsewhere")
    with cafcat.Snapshot(tmp_path / "taken") as snapshot, pytest.raises(Unavailable):
        list(PackedStream(snapshot, skip_errors=True))


def test_wrong_arguments(source: Any) -> None:
    for options, message in (
        ({"rank": 2, "ranks": 2}, "rank must be from 0 to 1, not 2"),
        ({"rank": 0}, "give both rank and ranks"),
        ({"worker": 0}, "give both worker and workers"),
        ({"worker": -1, "workers": 1}, "worker must be from 0 to 0, not -1"),
        ({"window_bytes": 0}, "must be at least 1"),
        ({"paths": "tree/n001"}, "must be a list of names"),
    ):
        with pytest.raises(InvalidInput, match=message):
            PackedStream(source, **options)
    with pytest.raises(NotFound):
        PackedStream(source, ["tree/n001", "nothing"])


def test_a_state_of_another_stream_is_refused(source: Any) -> None:
    state = PackedStream(source, seed=1, worker=0, workers=2).state_dict()
    with pytest.raises(InvalidInput, match="seed = 1, this stream has 2"):
        PackedStream(source, seed=2).load_state_dict(state)
    other = PackedStream(source, seed=1, worker=1, workers=2)
    other.load_state_dict(state)
    with pytest.raises(InvalidInput, match="the state was saved by"):
        iter(other)
