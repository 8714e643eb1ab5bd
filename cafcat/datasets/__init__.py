"""Packed files as data sets for training. `PackedDataset` and `PackedStream` follow the protocols of PyTorch."""

from cafcat.datasets.dataset import PackedDataset
from cafcat.datasets.stream import PackedStream

__all__ = ["PackedDataset", "PackedStream"]
