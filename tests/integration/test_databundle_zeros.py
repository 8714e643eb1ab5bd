"""Files of zeros, which need almost no bytes in their chunk. Reading such a file needs little memory."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

import cafcat
from cafcat.support.checksums import crc32c

ZEROS = 64 << 20
SPARSE = b"begin" + bytes(48 << 20) + b"end"


@pytest.fixture
def repository(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[cafcat.Repository]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "small").write_bytes(b"small")
    (tmp_path / "tree" / "sparse").write_bytes(SPARSE)
    (tmp_path / "tree" / "zeros").write_bytes(bytes(ZEROS))
    with cafcat.open(database_url=database_url, home=tmp_path, store=str(tmp_path / "store")) as repository:
        repository.ingest(["tree"], format="databundle", jobs=1)
        yield repository


def test_zeros_take_no_space(repository: cafcat.Repository, tmp_path: Path) -> None:
    assert sum(path.stat().st_size for path in (tmp_path / "store").glob("*.dbs")) < 100_000
    location = repository.locate("tree/zeros")
    assert (location.start_byte, location.size_bytes) == (location.end_byte, ZEROS)


def test_zeros_are_read_and_verified(repository: cafcat.Repository) -> None:
    assert repository.read("tree/zeros", 5_000_000, 5_000_010) == bytes(10)
    assert repository.read("tree/sparse", -3) == b"end"
    assert b"".join(repository.stream("tree/sparse")) == SPARSE
    report = repository.verify(level="data")
    assert (report.ok, report.damaged) == (1, 0)


def test_extracting_zeros_needs_little_memory(repository: cafcat.Repository, tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        report = repository.extract("", tmp_path / "out")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (report.files, report.files_failed) == (3, 0)
    assert peak < 16 << 20
    assert crc32c((tmp_path / "out" / "tree" / "zeros").read_bytes()) == repository.locate("tree/zeros").crc32c
    assert (tmp_path / "out" / "tree" / "sparse").read_bytes() == SPARSE
