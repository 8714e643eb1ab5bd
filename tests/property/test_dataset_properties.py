"""Data sets: each sample once per epoch over all ranks and workers, in an order that seed and epoch decide."""

import pickle
import random
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cafcat
from cafcat.datasets import PackedDataset, PackedStream
from tests.worlds.catalog_world import commit
from tests.worlds.servers.services import Databases

pytestmark = pytest.mark.slow

CONTENT = random.Random(3)
FILES = {f"tree/{n % 7}/n{n:03}": CONTENT.randbytes(CONTENT.choice((0, 1, 100, 3000))) for n in range(240)}
CHUNKS = 5


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory, databases: Databases) -> Iterator[cafcat.Snapshot]:
    """A snapshot of FILES in several chunks."""
    folder = tmp_path_factory.mktemp("files")
    with (
        databases.fresh(databases.template()) as url,
        cafcat.open(database_url=url, home=folder / "home", store=str(folder / "store")) as repository,
    ):
        names = sorted(FILES, key=lambda name: name[-3:])
        for n in range(CHUNKS):
            commit(repository, {name: FILES[name] for name in names[n::CHUNKS]})
        repository.snapshot(folder / "taken")
    with cafcat.Snapshot(folder / "taken", home=folder / "home", database_url="postgresql:///nowhere") as snapshot:
        yield snapshot


paths = st.lists(st.sampled_from(sorted(FILES)), max_size=80)
sizes = st.fixed_dictionaries(
    {
        "window_bytes": st.integers(1, 20_000),
        "window_samples": st.integers(1, 50),
        "block_bytes": st.integers(1, 20_000),
        "block_samples": st.integers(1, 30),
    }
)
settings = st.builds(
    lambda sizes, seed, shuffle: sizes | {"seed": seed, "shuffle": shuffle}, sizes, st.integers(), st.booleans()
)


def epoch_of(
    snapshot: cafcat.Snapshot, chosen: list[str], ranks: int, workers: int, epoch: int, **options: Any
) -> list[list[tuple[str, bytes]]]:
    """Return the samples of each worker of each rank in one epoch."""
    found = []
    for rank in range(ranks):
        for worker in range(workers):
            shard = {"rank": rank, "ranks": ranks, "worker": worker, "workers": workers}
            stream = PackedStream(snapshot, chosen, **shard, **options)
            stream.set_epoch(epoch)
            found.append(list(stream))
    return found


@given(paths, st.integers(1, 4), st.integers(1, 3), st.integers(0, 5), settings)
def test_each_sample_comes_once(
    snapshot: cafcat.Snapshot, chosen: list[str], ranks: int, workers: int, epoch: int, options: dict[str, Any]
) -> None:
    shares = epoch_of(snapshot, chosen, ranks, workers, epoch, **options)
    samples = [sample for share in shares for sample in share]
    assert Counter(path for path, _ in samples) == Counter(chosen)
    assert all(FILES[path] == content for path, content in samples)
    of_ranks = [sum(map(len, shares[rank * workers : (rank + 1) * workers])) for rank in range(ranks)]
    assert max(of_ranks) - min(of_ranks) <= 1
    assert shares == epoch_of(snapshot, chosen, ranks, workers, epoch, **options)


@given(paths, st.integers(1, 4), st.integers(1, 3), settings)
def test_even_shares_have_equally_many_samples(
    snapshot: cafcat.Snapshot, chosen: list[str], ranks: int, workers: int, options: dict[str, Any]
) -> None:
    shares = epoch_of(snapshot, chosen, ranks, workers, 0, drop_uneven=True, **options)
    counts = [list(map(len, shares[rank * workers : (rank + 1) * workers])) for rank in range(ranks)]
    assert all(of_rank == counts[0] for of_rank in counts)
    assert sum(map(sum, counts)) == len(chosen) // ranks * ranks
    assert not Counter(path for share in shares for path, _ in share) - Counter(chosen)


@given(paths, st.data(), settings)
def test_a_saved_state_continues_after_its_samples(
    snapshot: cafcat.Snapshot, chosen: list[str], data: st.DataObject, options: dict[str, Any]
) -> None:
    shard = {"rank": 0, "ranks": 2, "worker": 1, "workers": 2}
    stream = PackedStream(snapshot, chosen, **shard, **options)
    stream.set_epoch(3)
    whole = list(stream)
    taken = data.draw(st.integers(0, len(whole)))
    stream.set_epoch(3)
    samples = iter(stream)
    assert list(islice(samples, taken)) == whole[:taken]
    state = pickle.loads(pickle.dumps(stream.state_dict()))  # noqa: S301 - our own
    other = PackedStream(snapshot, chosen, **shard, **options)
    other.load_state_dict(state)
    assert list(other) == whole[taken:]
    assert list(other) == epoch_of(snapshot, chosen, 2, 2, 4, **options)[1]


@given(st.integers(), st.integers(0, 100))
def test_another_epoch_or_seed_has_another_order(snapshot: cafcat.Snapshot, seed: int, epoch: int) -> None:
    """The chance that 240 samples have the same order twice is none."""
    [[*order]] = epoch_of(snapshot, list(FILES), 1, 1, epoch, seed=seed)
    [[*next_order]] = epoch_of(snapshot, list(FILES), 1, 1, epoch + 1, seed=seed)
    [[*other_order]] = epoch_of(snapshot, list(FILES), 1, 1, epoch, seed=seed + 1)
    assert sorted(order) == sorted(next_order) == sorted(other_order) == sorted(FILES.items())
    assert order != next_order
    assert order != other_order


@given(st.lists(st.integers(-240, 239), max_size=30))
def test_a_batch_equals_its_samples(snapshot: cafcat.Snapshot, numbers: list[int]) -> None:
    dataset = PackedDataset(snapshot)
    assert len(dataset) == len(FILES)
    expected = [(path, FILES[path]) for path in (sorted(FILES)[number] for number in numbers)]
    assert dataset.__getitems__(numbers) == [dataset[number] for number in numbers] == expected
