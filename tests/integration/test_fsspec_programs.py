"""Programs that use fsspec read packed files: pandas, pyarrow, DuckDB, Dask, zarr and xarray.

`pip install '.[test-programs]'` installs them. Without them, the tests are skipped.
"""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest

import cafcat
from cafcat.filesystem import CafcatFileSystem

fsspec.register_implementation("cafcat", CafcatFileSystem, clobber=True)  # as the entry point of the package does

pytestmark = [
    pytest.mark.filterwarnings("default"),  # the libraries have warnings of their own
    pytest.mark.slow,  # importing the libraries takes most of the time
]


@pytest.fixture(params=["catalog", "snapshot"])
def options(request: pytest.FixtureRequest, local: cafcat.Repository, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Storage options of a catalog, or of its snapshot, with the files that the test made by `pack`."""
    settings = local.settings
    options = {"home": str(settings.home), "database_url": settings.database_url, "store": settings.store}
    if request.param == "snapshot":
        nowhere = {"home": str(tmp_path / "elsewhere"), "database_url": "postgresql:///nowhere?host=/nonexistent"}
        options = {"snapshot": str(tmp_path / "files.cafs"), **nowhere}
    yield options
    for fs in CafcatFileSystem._cache.values():
        fs._packed.close()
    CafcatFileSystem.clear_instance_cache()


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A folder for the files to pack."""
    (tmp_path / "made").mkdir()
    return tmp_path / "made"


def pack(local: cafcat.Repository, made: Path) -> None:
    """Pack a folder as "made", and make a snapshot of the catalog."""
    with local.writer() as writer:
        for path in sorted(made.rglob("*")):
            if path.is_file():
                writer.add(str(path.relative_to(made.parent)), path.read_bytes())
    local.snapshot(made.parent / "files.cafs")


def make_parquet(made: Path, files: int = 20, rows: int = 100) -> None:
    """Write a data set in folders by year."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for number in range(files):
        folder = made / f"year={2000 + number % 4}"
        folder.mkdir(exist_ok=True)
        first = number * rows
        table = arrow.table({"n": range(first, first + rows), "text": [f"t{n}" for n in range(rows)]})
        parquet.write_table(table, folder / f"{number}.parquet")


def test_pandas(local: cafcat.Repository, options: dict[str, Any], made: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": range(1000), "y": [f"ü{n}" for n in range(1000)]})
    frame.to_csv(made / "a.csv", index=False)
    frame.to_csv(made / "a.csv.gz", index=False)
    frame.to_json(made / "a.json")
    make_parquet(made)
    pack(local, made)
    for name in ("a.csv", "a.csv.gz"):
        assert pandas.read_csv(f"cafcat://made/{name}", storage_options=options).equals(frame)
    assert pandas.read_json("cafcat://made/a.json", storage_options=options).equals(frame)
    found = pandas.read_parquet("cafcat://made/year=2001/1.parquet", storage_options=options)
    assert found["n"].tolist() == list(range(100, 200))


def test_pandas_writes(local: cafcat.Repository, options: dict[str, Any], made: Path) -> None:
    pandas = pytest.importorskip("pandas")
    (made / "a").touch()
    pack(local, made)
    if "snapshot" in options:
        with pytest.raises(OSError, match="read-only"):
            pandas.DataFrame({"x": [1]}).to_csv("cafcat://new.csv", storage_options=options)
        return
    fs = fsspec.filesystem("cafcat", **options)
    frame = pandas.DataFrame({"x": range(10)})
    with fs.transaction:
        frame.to_csv("cafcat://new/a.csv", storage_options=options, index=False)
        frame.to_csv("cafcat://new/a.csv.gz", storage_options=options, index=False)
        frame.to_parquet("cafcat://new/a.parquet", storage_options=options)
    assert fs.find("new") == ["new/a.csv", "new/a.csv.gz", "new/a.parquet"]
    assert pandas.read_csv("cafcat://new/a.csv", storage_options=options).equals(frame)
    assert pandas.read_csv("cafcat://new/a.csv.gz", storage_options=options).equals(frame)
    assert pandas.read_parquet("cafcat://new/a.parquet", storage_options=options).equals(frame)


def test_pyarrow_dataset(local: cafcat.Repository, options: dict[str, Any], made: Path) -> None:
    dataset = pytest.importorskip("pyarrow.dataset")
    make_parquet(made)
    pack(local, made)
    fs = fsspec.filesystem("cafcat", **options)
    found = dataset.dataset("made", filesystem=fs, format="parquet", partitioning="hive")
    assert found.count_rows() == 2000
    table = found.to_table(filter=dataset.field("year") == 2001)
    assert sorted(table["n"].to_pylist()) == [n for n in range(2000) if n // 100 % 4 == 1]
    if "snapshot" not in options:
        with fs.transaction:
            dataset.write_dataset(table, "new", filesystem=fs, format="parquet")
        again = dataset.dataset("new", filesystem=fs, format="parquet").to_table()
        assert sorted(again["n"].to_pylist()) == sorted(table["n"].to_pylist())


def test_duckdb(local: cafcat.Repository, options: dict[str, Any], made: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    make_parquet(made)
    (made / "a.csv").write_text("x,y\n1,one\n2,two\n")
    pack(local, made)
    connection = duckdb.connect()
    connection.register_filesystem(fsspec.filesystem("cafcat", **options))
    query = "SELECT count(*), sum(n), count(DISTINCT year) FROM read_parquet('cafcat://made/*/*.parquet')"
    assert connection.execute(query).fetchall() == [(2000, sum(range(2000)), 4)]
    assert connection.execute("SELECT y FROM 'cafcat://made/a.csv' WHERE x = 2").fetchall() == [("two",)]
    with pytest.raises(duckdb.Error, match=r"No files found|nothing"):
        connection.execute("SELECT * FROM 'cafcat://made/nothing.csv'")


def test_dask(local: cafcat.Repository, options: dict[str, Any], made: Path) -> None:
    """Two worker processes get the file system by a pickle."""
    dask, frames = pytest.importorskip("dask"), pytest.importorskip("dask.dataframe")
    make_parquet(made)
    for number in range(10):
        (made / f"{number}.csv").write_text("x\n" + "\n".join(str(n) for n in range(number * 10, number * 10 + 10)))
    pack(local, made)
    csv = frames.read_csv("cafcat://made/*.csv", storage_options=options)
    parquet = frames.read_parquet("cafcat://made", storage_options=options)
    with dask.config.set(scheduler="threads"):
        assert csv.x.sum().compute() == sum(range(100))
        assert len(parquet) == 2000
    with (
        multiprocessing.get_context("spawn").Pool(2) as pool,
        dask.config.set(scheduler="processes", pool=pool),
    ):
        assert csv.x.sum().compute() == sum(range(100))
        assert parquet.n.sum().compute() == sum(range(2000))


def test_dask_reads_bytes_in_blocks(local: cafcat.Repository, options: dict[str, Any], made: Path) -> None:
    bag = pytest.importorskip("dask.bag")
    (made / "lines.txt").write_text("".join(f"line {n}\n" for n in range(50_000)))
    pack(local, made)
    lines = bag.read_text("cafcat://made/lines.txt", blocksize=50_000, storage_options=options)
    assert lines.npartitions > 5
    assert lines.count().compute(scheduler="threads") == 50_000


def test_zarr(local: cafcat.Repository, options: dict[str, Any], made: Path) -> None:
    """A Zarr array of 400 chunks, which is 400 small files."""
    zarr, numpy = pytest.importorskip("zarr"), pytest.importorskip("numpy")
    values = numpy.arange(200 * 200, dtype="i4").reshape(200, 200)
    array = zarr.create_array(str(made / "a.zarr"), shape=values.shape, chunks=(10, 10), dtype="i4", fill_value=-1)
    array[:] = values
    pack(local, made)
    found = zarr.open_array("cafcat://made/a.zarr", storage_options=options, mode="r")
    assert (found[:] == values).all()
    assert (found[35:47, 3] == values[35:47, 3]).all()


def test_zarr_does_not_take_damage_for_fill_values(
    local: cafcat.Repository, options: dict[str, Any], made: Path
) -> None:
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(str(made / "a.zarr"), shape=(8,), chunks=(1,), dtype="i8", fill_value=-1)
    array[:] = range(8)
    pack(local, made)
    location = local.locate("made/a.zarr/c/3")
    chunk = Path(local.object_of(location))
    with chunk.open("r+b") as file:
        file.seek(location.start_byte)
        file.write(b"damaged!")
    found = zarr.open_array("cafcat://made/a.zarr", storage_options=options, mode="r")
    assert found[2] == 2
    with pytest.raises(cafcat.errors.Corrupt):
        print(found[:])


def test_xarray_of_many_small_files(local: cafcat.Repository, options: dict[str, Any], made: Path) -> None:
    """A year of days, each a Zarr group of its own with several small files, opened as one data set."""
    xarray, numpy = pytest.importorskip("xarray"), pytest.importorskip("numpy")
    pytest.importorskip("zarr")
    pytest.importorskip("dask.array")
    for day in range(40):
        values = numpy.full((1, 6, 6), day, dtype="f4")
        one = xarray.Dataset({"t": (("day", "y", "x"), values)}, coords={"day": [day]})
        one.to_zarr(made / f"day{day:03}.zarr", consolidated=False)
    pack(local, made)
    urls = [f"cafcat://made/day{day:03}.zarr" for day in range(40)]
    with xarray.open_mfdataset(
        urls,
        engine="zarr",
        concat_dim="day",
        combine="nested",
        backend_kwargs={"storage_options": options, "consolidated": False},
    ) as found:
        assert found.t.shape == (40, 6, 6)
        assert float(found.t.sum()) == sum(range(40)) * 36


def test_threads_of_pyarrow_share_files(local: cafcat.Repository, options: dict[str, Any], made: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    make_parquet(made, files=8)
    pack(local, made)
    fs = fsspec.filesystem("cafcat", **options)

    def read(number: int) -> int:
        path = f"made/year={2000 + number % 4}/{number}.parquet"
        return int(parquet.read_table(path, filesystem=fs, partitioning=None)["n"][0].as_py())

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(read, range(8))) == [number * 100 for number in range(8)]
