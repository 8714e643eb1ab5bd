"""Verify and extract, against programs that read the same bytes."""

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.bench.bench import Bench, Home
from tests.bench.caching import forget_contents
from tests.bench.data import read_all
from tests.bench.table import Row, at_most, pair_ratios
from tests.bench.timing import in_turn, seconds_of, shell, timed

CHUNKS = 4
"""Number of chunks of (a), so that several processes have work."""
_SHA256 = 'sha256sum "$@"'
_CAT = 'cat "$@" >/dev/null'
_UNTAR = 'tar xf "$1" -C "$2" && sync'


def verify(bench: Bench) -> Iterator[Row]:
    """Verify (a), whose chunks are in the page cache."""
    home = bench.packed(bench.small, CHUNKS)
    read_all(iter(home.chunks()))
    ways = {
        "sha256sum": partial(_of_chunks, home, _SHA256),
        "cafcat -j1": partial(_verify, home, "-j", "1"),
        "cafcat": partial(_verify, home),
    }
    measured = in_turn(ways, bench.rounds)
    work = f"verify --level data of (a), {len(home.chunks())} chunks in cache"
    for name, option in (("cafcat -j1", "-j1"), ("cafcat", "default")):
        ratios = pair_ratios(measured[name], measured["sha256sum"])
        absolute = seconds_of(measured, name, "sha256sum")
        yield Row(
            f"verifying.verify {option}", f"{work}, {option}", "sha256sum of them", at_most(0.35), ratios, absolute
        )


def verify_large(bench: Bench) -> Iterator[Row]:
    """Verify (c) from disk."""
    home = bench.packed(bench.large)
    before = partial(forget_contents, home.chunks())
    ways = {"cat": partial(_of_chunks, home, _CAT, before), "cafcat": partial(_verify, home, before=before)}
    measured = in_turn(ways, bench.rounds)
    ratios = pair_ratios(measured["cafcat"], measured["cat"])
    absolute = seconds_of(measured, "cafcat", "cat")
    work = "verify --level data of (c), chunk not in the page cache"
    yield Row("verifying.verify_large", work, "cat chunk > /dev/null", at_most(1.3), ratios, absolute)


def extract(bench: Bench) -> Iterator[Row]:
    """Extract (a) into new folders on the same disk, durably with both programs.

    The folders are removed at the end: for minutes after the removal of many files, ext4 needs ten times as long
    for each new file.
    """
    home = bench.packed(bench.small, CHUNKS)
    archive = bench.folder / "small.tar"
    shell('tar cf "$1" "$2"', archive, bench.small.name, cwd=bench.folder)
    read_all(iter([archive, *home.chunks()]))
    extracted = bench.folder / "extracted"
    ways = {
        "tar": partial(_extract, bench, lambda target: shell(_UNTAR, archive, target)),
        "cafcat": partial(
            _extract, bench, lambda target: home.cafcat("extract", "-q", bench.small.name, "-C", target)
        ),
    }
    measured = in_turn(ways, bench.rounds)
    shutil.rmtree(extracted)
    archive.unlink()
    ratios = pair_ratios(measured["cafcat"], measured["tar"])
    absolute = seconds_of(measured, "cafcat", "tar")
    yield Row(
        "verifying.extract",
        f"extract of (a), {bench.files:,} files",
        "tar xf + sync",
        at_most(0.9),
        ratios,
        absolute,
    )


ROWS = (verify, verify_large, extract)


def _verify(home: Home, *options: str, before: Callable[[], object] = list) -> float:
    before()
    return timed(lambda: home.cafcat("verify", "-q", "--level", "data", *options))


def _of_chunks(home: Home, script: str, before: Callable[[], object] = list) -> float:
    before()
    return timed(lambda: shell(script, *home.chunks()))


def _extract(bench: Bench, work: Callable[[Path], object]) -> float:
    """Return the seconds until all files of (a) are extracted into a new folder, which stays."""
    extracted = bench.folder / "extracted"
    extracted.mkdir(exist_ok=True)
    target = extracted / str(len(list(extracted.iterdir())))
    target.mkdir()
    os.sync()
    seconds = timed(lambda: work(target))
    files = sum(len(list(place.iterdir())) for place in (target / bench.small.name).iterdir())
    assert files == bench.files, f"{files} of {bench.files} files were extracted"
    return seconds
