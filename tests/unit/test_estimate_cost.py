"""The cost model: prices, requests and dollars, and the table of docs/scale-cost.md."""

import os
from pathlib import Path

import pytest

import cafcat
from cafcat.errors import InvalidInput, Unsupported
from cafcat.model import SourceFile
from cafcat.operations.estimate.cost import ClassCost, Packing, chunks_of, cost_of, requests_of
from cafcat.operations.estimate.options import EstimateOptions
from cafcat.operations.estimate.prices import read_prices
from cafcat.operations.estimate.run import estimate_sources
from cafcat.operations.estimate.sizes import Sizes
from cafcat.sources.base import ListedPage
from cafcat.stores.s3.parts import plan_parts

DOCS = Path(__file__).parents[2] / "docs" / "scale-cost.md"
OBJECTS, SIZE_BYTES, NAME = 10**9, 20_000, "n" * 31
GIB = 1 << 30
PRICES = read_prices()


class Billion:
    """A bucket with 10⁹ objects of 20,000 bytes, whose names have 40 bytes."""

    name = "s3://billion"
    top_folder = ""

    def page(self, folder: str, after: str | None = None) -> ListedPage:
        first = 0
        if after is not None and after >= NAME:
            digits = "".join(c if c.isdigit() else "9" for c in after[len(NAME) :])[:9]
            first = int(digits.ljust(9, "0")) + (len(after) >= len(NAME) + 9)
        names = [f"{NAME}{n:09}" for n in range(first, min(OBJECTS, first + 1000))]
        files = [SourceFile(name, SIZE_BYTES, 0, name, None) for name in names]
        return ListedPage(files, [], names, first + 1000 >= OBJECTS)

    def files(self) -> object:
        first = self.page("").files
        while True:
            yield from first

    def batches(self) -> object:
        while True:
            yield self.page("").files

    def open(self, file: SourceFile) -> object:
        raise AssertionError("no file is read")


@pytest.fixture(scope="module")
def report() -> object:
    with cafcat.open(home=os.devnull, database_url="dbname=none", target_size="30GB") as repository:
        options = EstimateOptions(["s3://billion"], read_seconds=0.0)
        return estimate_sources(repository.session, options, [Billion()])


def test_the_estimate_of_a_billion_objects_is_the_table_of_the_docs(report: object) -> None:
    assert not report.is_exact
    assert report.objects == pytest.approx(OBJECTS, rel=0.002)
    assert report.objects_range[0] <= OBJECTS <= report.objects_range[1]
    assert report.size_bytes == pytest.approx(OBJECTS * SIZE_BYTES, rel=0.002)
    assert report.pages <= 230
    expected = table(Sizes.equal(OBJECTS, SIZE_BYTES), packing())
    if os.environ.get("CAFCAT_WRITE_DOCS"):
        head, _, rest = DOCS.read_text().partition("checks it -->\n")
        DOCS.write_text(f"{head}checks it -->\n{expected}<!-- end -->{rest.partition('<!-- end -->')[2]}")
    assert expected in DOCS.read_text()
    exact = [cost_of(name, Sizes.equal(OBJECTS, SIZE_BYTES), packing(), PRICES) for name in PRICES.classes]
    for cost, other in zip(report.costs, exact, strict=True):
        for field in ClassCost.__slots__[1:]:
            assert getattr(cost, field) == pytest.approx(getattr(other, field), rel=0.004), field


def packing() -> Packing:
    from cafcat.formats import registry as formats
    from cafcat.formats.base import NullSink

    writer = formats.by_name("caf").writer(NullSink())
    overhead = writer.size_if_finalized("n" * 40, SIZE_BYTES) - SIZE_BYTES - writer.size_if_finalized()
    return Packing(30_000_000_000, plan_parts(256_000_000).part_bytes, overhead)


def table(sizes: Sizes, how: Packing) -> str:
    chunks = chunks_of(sizes, how)
    requests = requests_of(sizes, chunks)
    lines = [
        f"\nPacked, they are {chunks.count:,} chunks with {chunks.size_bytes / 1e12:.2f} TB. The ingest sends"
        f" {requests.total:,} requests: {requests.list:,} LIST",
        f"and {requests.get:,} GET to the source, {requests.part + requests.put:,} PUT and POST and"
        f" {requests.head:,} HEAD to the store.\n",
        "| class | a month, single | packed | writing singles | packing | read 1 %, single | packed"
        " | read all, single | packed |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name in PRICES.classes:
        cost = cost_of(name, sizes, how, PRICES)
        values = (
            *(cost.single_month, cost.packed_month, cost.single_writing, cost.packing, cost.single_read_1_percent),
            *(cost.packed_read_1_percent, cost.single_read_all, cost.packed_read_all),
        )
        lines.append(f"| {name} | " + " | ".join(f"${value:,.2f}" for value in values) + " |")
    return "\n".join(lines) + "\n"


def test_costs_are_the_sums_that_one_computes_by_hand() -> None:
    sizes, how = Sizes.equal(1_000_000, 20_000), Packing(1_000_000_000, 16 << 20, 0)
    standard = cost_of("STANDARD", sizes, how, PRICES)
    assert standard.single_month == pytest.approx(2e10 / GIB * 0.023)
    assert standard.single_writing == pytest.approx(5.0)
    assert standard.single_read_all == pytest.approx(0.4)
    assert standard.packing == pytest.approx(
        1000 * 0.005 / 1000 + 0.4 + 20 * (60 + 3 + 2) * 0.005 / 1000 + 41 * 4e-7
    )
    rare = cost_of("GLACIER_IR", sizes, how, PRICES)
    assert rare.single_month == pytest.approx(1e6 * 131_072 / GIB * 0.004)  # each object counts as one of 128 KiB
    assert rare.packed_month == pytest.approx(2e10 / GIB * 0.004)
    assert rare.single_read_1_percent == pytest.approx(0.1 + 2e8 / GIB * 0.03)
    deep = cost_of("DEEP_ARCHIVE", sizes, how, PRICES)
    overhead = 1e6 * (32_768 * 0.00099 + 8_192 * 0.023) / GIB
    assert deep.single_month == pytest.approx(2e10 / GIB * 0.00099 + overhead)
    assert deep.packed_read_1_percent == pytest.approx(10_000 * 4e-7 + 20 * 1e-4 + 2e10 / GIB * 0.02)


def test_storage_gets_cheaper_by_steps() -> None:
    tib = 1 << 40
    assert PRICES.stepped(600 * tib, PRICES.standard.storage) == pytest.approx(
        51_200 * 0.023 + 460_800 * 0.022 + 102_400 * 0.021
    )


def test_a_chunk_has_at_most_a_million_files_and_none_without_objects() -> None:
    how = Packing(30_000_000_000, 16 << 20, 100)
    assert chunks_of(Sizes.equal(5_000_001, 10), how).count == 6
    assert chunks_of(Sizes(), how).count == 0


@pytest.mark.parametrize(
    "text",
    ["", "classes = {}", "nonsense", 'region = "x"\n[classes.A]\nstorage = [[inf, 1]]', "[classes.A]\nprice = 1"],
)
def test_a_file_that_is_no_price_list_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "prices.toml").write_text(text)
    with pytest.raises(InvalidInput, match=r"prices\.toml cannot be read"):
        read_prices(tmp_path / "prices.toml")


def test_own_prices_are_used(tmp_path: Path) -> None:
    text = (Path(cafcat.__file__).parent / "operations" / "estimate" / "prices.toml").read_text()
    (tmp_path / "own.toml").write_text(text.replace('"us-east-1"', '"here"').replace("0.023]", "23]"))
    own = read_prices(tmp_path / "own.toml")
    assert (own.region, own.standard.storage[0][1]) == ("here", 23)


def test_folders_are_counted_and_need_no_requests_to_a_source(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for n in range(30):
        (tmp_path / "a" / "b" / f"{n}.bin").write_bytes(bytes(n))
    with cafcat.open(home=tmp_path / "home", database_url="dbname=none") as repository:
        report = repository.estimate([tmp_path / "a"], exclude=["7.bin"])
        assert (report.is_exact, report.objects, report.size_bytes) == (True, 29, 428)
        assert (report.requests.list, report.requests.get, report.chunks) == (0, 0, 1)
        assert report.speed.objects == 29
        with pytest.raises(Unsupported, match="logs"):
            repository.estimate([tmp_path / "a"], format="clp-s")
        with pytest.raises(InvalidInput, match="no source"):
            repository.estimate([])
