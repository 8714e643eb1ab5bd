"""Data sets in the DataLoader of PyTorch and the StatefulDataLoader of torchdata: skipped without them."""

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import cafcat
from cafcat.datasets import PackedDataset, PackedStream
from cafcat.errors import Corrupt
from tests.worlds.archives.damage import flip
from tests.worlds.catalog_world import Opener, commit
from tests.worlds.places import Folder
from tests.worlds.sample_source import sample_source
from tests.worlds.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.slow  # importing PyTorch takes seconds

FILES = {f"tree/n{n:03}": b"%d " % n * n for n in range(101)}
SIZES = [(path, len(content)) for path, content in FILES.items()]
PROJECT = Path(__file__).parents[2]


@pytest.fixture
def torch_data() -> Any:
    """The module torch.utils.data. A build for CUDA cannot be imported without the libraries of CUDA."""
    return pytest.importorskip("torch.utils.data", exc_type=ImportError)


@pytest.fixture(params=["snapshot", "repository", "snapshot of a bucket"])
def source(request: pytest.FixtureRequest, torch_data: Any, open_at: Opener, tmp_path: Path) -> Iterator[Any]:
    place = request.getfixturevalue("bucket" if request.param.endswith("bucket") else "folder")
    with sample_source(request.param, open_at(place), FILES, tmp_path) as found:
        yield found


def length(path: str, content: bytes) -> tuple[str, int]:
    return path, len(content)


def samples(loader: Iterable[Any]) -> list[tuple[str, int]]:
    """Return the samples of one epoch, in the order of the loader."""
    return [(path, int(size)) for paths, sizes in loader for path, size in zip(paths, sizes, strict=True)]


def test_a_loader_shuffles_a_data_set(torch_data: Any, source: Any) -> None:
    """The parent reads first, so that forked workers inherit its connections and open files."""
    dataset = PackedDataset(source, transform=length)
    assert dataset[3] == SIZES[3]
    loader = torch_data.DataLoader(
        dataset, batch_size=8, shuffle=True, num_workers=2, multiprocessing_context="fork"
    )
    first, second = samples(loader), samples(loader)
    assert sorted(first) == sorted(second) == SIZES
    assert first != second
    assert SIZES not in (first, second)


def test_a_loader_reads_each_sample_of_a_stream_once(torch_data: Any, source: Any) -> None:
    stream = PackedStream(source, transform=length, block_samples=7)
    next(iter(stream))
    loader = torch_data.DataLoader(stream, batch_size=8, num_workers=2, multiprocessing_context="fork")
    assert len(loader) == 13
    epochs = []
    for epoch in (0, 1, 0):
        stream.set_epoch(epoch)
        epochs.append(samples(loader))
        assert sorted(epochs[-1]) == SIZES
    assert epochs[0] == epochs[2] != epochs[1]


@pytest.mark.parametrize(
    ("source", "kind"), [("snapshot", PackedStream), ("repository", PackedDataset)], indirect=["source"]
)
def test_spawned_workers(torch_data: Any, source: Any, kind: Any) -> None:
    """Each worker imports PyTorch, which takes seconds."""
    dataset = kind(source, transform=length)
    loader = torch_data.DataLoader(dataset, batch_size=8, num_workers=2, multiprocessing_context="spawn")
    assert sorted(samples(loader)) == SIZES


def test_persistent_workers_count_the_epochs(torch_data: Any, source: Any) -> None:
    stream = PackedStream(source, transform=length, block_samples=7)
    expected = []
    for epoch in (5, 6, 7):
        stream.set_epoch(epoch)
        expected.append(samples(torch_data.DataLoader(stream, batch_size=8, num_workers=2)))
    stream.set_epoch(5)
    loader = torch_data.DataLoader(stream, batch_size=8, num_workers=2, persistent_workers=True)
    assert [samples(loader) for _ in expected] == expected
    assert expected[0] != expected[1] != expected[2]


def test_two_ranks_share_the_samples(torch_data: Any, source: Any) -> None:
    shares = []
    for rank in range(2):
        stream = PackedStream(source, transform=length, block_samples=7, rank=rank, ranks=2)
        stream.set_epoch(1)
        shares.append(samples(torch_data.DataLoader(stream, batch_size=8, num_workers=2)))
        assert len(shares[-1]) == len(stream)
    assert [len(share) for share in shares] == [50, 51]
    assert sorted(shares[0] + shares[1]) == SIZES


def test_ranks_have_equally_many_batches_without_uneven_samples(torch_data: Any, source: Any) -> None:
    for rank in range(2):
        stream = PackedStream(source, transform=length, rank=rank, ranks=2, drop_uneven=True)
        loader = torch_data.DataLoader(stream, batch_size=5, num_workers=2)
        assert len(list(loader)) == len(loader) == 10


def test_a_distributed_sampler_divides_a_data_set(torch_data: Any, source: Any) -> None:
    distributed = pytest.importorskip("torch.utils.data.distributed")
    dataset = PackedDataset(source, transform=length)
    shares = []
    for rank in range(2):
        sampler = distributed.DistributedSampler(dataset, num_replicas=2, rank=rank)
        sampler.set_epoch(1)
        loader = torch_data.DataLoader(dataset, batch_size=8, sampler=sampler, num_workers=2)
        shares.append(samples(loader))
    assert [len(share) for share in shares] == [51, 51]  # the sampler pads
    assert sorted({*shares[0], *shares[1]}) == SIZES


RANK = """
import json, sys
import torch.distributed
from torch.utils.data import DataLoader
import cafcat
from cafcat.datasets import PackedStream

rank, meeting, place = int(sys.argv[1]), sys.argv[2], sys.argv[3]
torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
stream = PackedStream(cafcat.Snapshot(place), transform=lambda path, content: path)
print(json.dumps([path for paths in DataLoader(stream, batch_size=8, num_workers=2) for path in paths]))
torch.distributed.destroy_process_group()
"""


def test_a_stream_finds_its_rank_in_the_process_group(
    torch_data: Any, local: cafcat.Repository, tmp_path: Path
) -> None:
    commit(local, FILES)
    local.snapshot(tmp_path / "taken")
    arguments = [str(tmp_path / "meeting"), str(tmp_path / "taken")]
    ranks = [
        subprocess.Popen([sys.executable, "-c", RANK, str(rank), *arguments], cwd=PROJECT, stdout=subprocess.PIPE)
        for rank in range(2)
    ]
    shares = [json.loads(rank.communicate(timeout=PATIENCE_SECONDS)[0]) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    assert [len(share) for share in shares] == [50, 51]
    assert sorted(shares[0] + shares[1]) == list(FILES)


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata 0.11 calls it
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", [PackedStream, PackedDataset])
def test_a_stateful_loader_continues_in_the_middle_of_an_epoch(source: Any, kind: Any, workers: int) -> None:
    module = pytest.importorskip("torchdata.stateful_dataloader", exc_type=ImportError)

    def loader() -> Any:
        return module.StatefulDataLoader(kind(source, transform=length), batch_size=8, num_workers=workers)

    expected = loader()
    first_epoch, second_epoch = samples(expected), samples(expected)
    interrupted = loader()
    batches = iter(interrupted)
    before = samples(islice(batches, 5))
    continued = loader()
    continued.load_state_dict(interrupted.state_dict())
    rest = samples(batches)  # the workers of a loader that is left are killed if they do not end soon
    assert samples(continued) == rest
    assert before + rest == first_epoch
    assert sorted(first_epoch) == SIZES
    assert samples(continued) == second_epoch


def test_a_damaged_file_in_a_worker_raises_its_error(
    torch_data: Any, local: cafcat.Repository, folder: Folder
) -> None:
    commit(local, FILES)
    [chunk] = folder.folder.glob("*.caf")
    flip(chunk, local.locate("tree/n050").start_byte)
    for dataset in (PackedDataset(local, transform=length), PackedStream(local, transform=length)):
        with pytest.raises(Corrupt, match="tree/n050"):
            samples(torch_data.DataLoader(dataset, batch_size=8, num_workers=2))
    stream = PackedStream(local, transform=length, skip_errors=True)
    others = [sample for sample in SIZES if sample[0] != "tree/n050"]
    assert sorted(samples(torch_data.DataLoader(stream, batch_size=8, num_workers=2))) == others
