"""Ingest against tar and dd: whole commands whose output is durable at their end, including cafcat's commit."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.bench.bench import CAFCAT, Bench
from tests.bench.caching import forget_all
from tests.bench.data import DataSet, read_all, small_files
from tests.bench.table import NO_TARGET, Row, Target, at_most, better_of, figure, pair_ratios
from tests.bench.timing import Way, in_turn, run, seconds_of, shell, timed

TAR = "tar + sync"
TAR_DIRECT = "tar - | dd oflag=direct"
DD = "dd oflag=direct"
JOBS = {"-j1": ("-j", "1"), "-j2": ("-j", "2")}
TARGETS = {"-j1": at_most(1.0), "-j2": at_most(0.7)}
COLD_TARGETS = {"-j1": at_most(0.8), "-j2": at_most(0.5)}
FOLDERS = 20_000
FEW_FILES = 10_000
FEW_SECONDS = 0.3
NO_JOBS = "not built: ingest has no -j"
NO_DIRECT = "dd oflag=direct is refused in this folder"

_TAR = 'tar cf "$2" "$1" && sync "$2"'
_TAR_DIRECT = 'tar cf - "$1" | dd of="$2" bs=4M iflag=fullblock oflag=direct conv=fsync status=none'
_DD = 'dd if="$1" of="$2" bs=4M oflag=direct conv=fsync status=none'


def small(bench: Bench) -> Iterator[Row]:
    """Pack (a) from the page cache, with one process and with two."""
    data, warm = bench.small, _warm(bench.small)
    tars = _tars(bench, data, warm)
    yield from _against_tar(bench, data, "packing.small", "ingest (a), warm", TARGETS, tars, warm)


def small_cold(bench: Bench) -> Iterator[Row]:
    """Pack (a) from disk: the page cache has the programs, but none of the files."""
    data = bench.small
    how = forget_all(data.paths())
    if how != "drop_caches":
        bench.say(f"packing.small_cold: {how}")
    before = partial(_cool, bench, data)
    work = f"ingest (a), cold ({how}; programs warm)"
    tars = _tars(bench, data, before)
    yield from _against_tar(bench, data, "packing.small_cold", work, COLD_TARGETS, tars, before)


def folders(bench: Bench) -> Iterator[Row]:
    """Pack folders of a single small file each, from the page cache."""
    data = small_files(bench.folder / "folders", FOLDERS, folder_files=1)
    warm = _warm(data)
    work = f"ingest of {FOLDERS:,} folders of one file, warm"
    targets = dict.fromkeys(JOBS, NO_TARGET)
    yield from _against_tar(bench, data, "packing.folders", work, targets, _tars(bench, data, warm), warm)
    data.remove()


def few(bench: Bench) -> Iterator[Row]:
    """Pack few files from the page cache, by a command whose start takes a part of the time."""
    data = small_files(bench.folder / "few", FEW_FILES)
    seconds = [bench.ingest_anew(data, before=_warm(data)) for _ in range(bench.rounds + 1)][1:]
    data.remove()
    work = f"ingest of {FEW_FILES:,} small files, warm, process included"
    ratios = [one / FEW_SECONDS for one in seconds]
    yield Row("packing.few", work, f"{FEW_SECONDS} s", at_most(1), ratios, figure(seconds, "s"))


def medium(bench: Bench) -> Iterator[Row]:
    """Pack (b)."""
    yield from _against_dd(bench, "packing.medium", "ingest (b), 1 MiB each", bench.medium)


def large(bench: Bench) -> Iterator[Row]:
    """Pack (c)."""
    yield from _against_dd(bench, "packing.large", "ingest (c), 64 MiB each", bench.large)


ROWS = (small, small_cold, folders, few, medium, large)


def tar(bench: Bench, data: DataSet, script: str = _TAR, before: Callable[[], object] | None = None) -> float:
    """Return the seconds for making a tar archive."""
    archive = bench.folder / "peer.tar"
    if before:
        before()
    seconds = timed(lambda: shell(script, data.name, archive, cwd=bench.folder))
    archive.unlink()
    return seconds


def _warm(data: DataSet) -> Callable[[], object]:
    """Return a function that reads all files into the page cache.

    It is called before each run. Some virtual machines, which return memory to their host, drop pages that were not
    used for a minute.
    """
    return lambda: read_all(data.paths())


def _tars(bench: Bench, data: DataSet, before: Callable[[], object] | None = None) -> dict[str, Way]:
    scripts = {TAR: _TAR, TAR_DIRECT: _TAR_DIRECT} if bench.can_write_directly else {TAR: _TAR}
    return {name: partial(tar, bench, data, script, before) for name, script in scripts.items()}


def ways_to_ingest(bench: Bench, data: DataSet, before: Callable[[], object] | None = None) -> dict[str, Way]:
    """Return the ways to ingest: with one process and with two; one way if cafcat has no such option."""
    chosen = JOBS if bench.ingest_has_jobs else {"-j1": ()}

    def ingest(options: tuple[str, ...]) -> float:
        return bench.ingest_anew(data, *options, before=before)

    return {name: partial(ingest, options) for name, options in chosen.items()}


def _against_tar(
    bench: Bench,
    data: DataSet,
    name: str,
    work: str,
    targets: dict[str, Target],
    tars: dict[str, Way],
    before: Callable[[], object] | None = None,
) -> Iterator[Row]:
    """Yield rows against the faster way to use tar."""
    measured = in_turn(tars | ways_to_ingest(bench, data, before), bench.rounds)
    base = better_of({peer: measured[peer] for peer in tars})
    for option, target in targets.items():
        row = Row(f"{name} {option}", f"{work}, {option}", base, target, missing=NO_JOBS)
        if option in measured:
            absolute = _absolute(data, measured, option, *tars)
            row = row._replace(ratios=pair_ratios(measured[option], measured[base]), absolute=absolute)
        yield row


def _against_dd(bench: Bench, name: str, work: str, data: DataSet) -> Iterator[Row]:
    targets = dict.fromkeys(JOBS if bench.ingest_has_jobs else ["-j1"], at_most(1.2))
    if not bench.can_write_directly:
        yield from (
            Row(f"{name} {option}", work, DD, target, missing=NO_DIRECT) for option, target in targets.items()
        )
        return
    with bench.joined(data) as joined:
        ways = {DD: partial(_dd, bench, joined)} | ways_to_ingest(bench, data, _warm(data))
        measured = in_turn(ways, bench.rounds)
    for option, target in targets.items():
        ratios = pair_ratios(measured[option], measured[DD])
        absolute = _absolute(data, measured, option, DD)
        yield Row(f"{name} {option}", f"{work}, {option}", DD, target, ratios, absolute)


def _dd(bench: Bench, joined: Path) -> float:
    output = bench.folder / "peer.dd"
    read_all(iter([joined]))
    seconds = timed(lambda: shell(_DD, joined, output))
    output.unlink()
    return seconds


def _absolute(data: DataSet, measured: dict[str, list[float]], option: str, *peers: str) -> str:
    ours = {"cafcat": measured[option]} | {peer: measured[peer] for peer in peers}
    return f"{data.files:,} files, {data.size_bytes / 1e6:,.0f} MB: {seconds_of(ours, *ours)}"


def _cool(bench: Bench, data: DataSet) -> None:
    """Empty the page cache, then load the programs into it again."""
    forget_all(data.paths())
    nothing = bench.folder / "nothing"
    nothing.mkdir(exist_ok=True)
    shell(
        _TAR_DIRECT if bench.can_write_directly else _TAR,
        nothing.name,
        bench.folder / "nothing.tar",
        cwd=bench.folder,
    )
    run(*CAFCAT, "ingest", "-q", nothing.name, cwd=bench.folder, environ=bench.home("warm").environ)
