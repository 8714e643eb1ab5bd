"""Estimates from parts of a listing, against sources whose files are known."""

import bisect
import hashlib
import random
from collections.abc import Sequence

import pytest

from cafcat.model import SourceFile
from cafcat.operations.estimate.sampling import Sample, estimate_folder
from cafcat.progress import Progress
from cafcat.sources.base import ListedPage


class Listing:
    """A bucket in memory, which lists pages of at most 1,000 names as S3 does, and counts the pages."""

    name = "a bucket"
    top_folder = ""

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes = sizes
        self.keys = sorted(sizes)
        self.pages = 0

    def page(self, folder: str, after: str | None = None) -> ListedPage:
        self.pages += 1
        place = (
            bisect.bisect_right(self.keys, after or "")
            if (after or "") > folder
            else bisect.bisect_left(self.keys, folder)
        )
        files: list[SourceFile] = []
        folders: list[str] = []
        while place < len(self.keys) and self.keys[place].startswith(folder):
            if len(files) + len(folders) == 1000:
                return self._listed(files, folders, is_last=False)
            key = self.keys[place]
            head, slash, _ = key[len(folder) :].partition("/")
            if slash:
                folders.append(f"{folder}{head}/")
                place = bisect.bisect_left(self.keys, f"{folder}{head}0")
            else:
                files.append(SourceFile(key, self.sizes[key], 0, key, None))
                place += 1
        return self._listed(files, folders, is_last=True)

    def _listed(self, files: Sequence[SourceFile], folders: Sequence[str], *, is_last: bool) -> ListedPage:
        return ListedPage(files, folders, sorted([file.locator for file in files] + list(folders)), is_last)


class Stopping:
    """A session without a database: only its checkpoint is called."""

    checkpoint = Progress().checkpoint


def hashes(count: int) -> list[str]:
    return [hashlib.md5(str(n).encode(), usedforsecurity=False).hexdigest() for n in range(count)]


SHAPES = {
    "few": [f"a/{n}.txt" for n in range(700)],
    "hashes": hashes(200_000),
    "numbers": [f"img{n:09}.jpg" for n in range(200_000)],
    "plain numbers": [f"{n}.jpg" for n in range(150_000)],
    "dates": [
        f"logs/2026/{m:02}/{d:02}/{h:02}/{n:05}.log"
        for m in range(1, 13)
        for d in range(1, 29)
        for h in range(24)
        for n in range(20)
    ],
    "uneven folders": [f"u{u}/{n}" for u in range(400) for n in range(u * 3)],
    "many folders": [f"user-{name}/{n}" for name in hashes(20_000) for n in range(5)],
    "two runs": [f"cat{n:06}" for n in range(60_000)] + [f"dog{n:06}" for n in range(120_000)],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_an_estimate_is_near_the_truth_and_says_how_near(shape: str) -> None:
    chance = random.Random(shape)
    sizes = {key: chance.randrange(10_000, 30_000) for key in SHAPES[shape]}
    listing = Listing(sizes)
    found = estimate_folder(Sample(Stopping(), listing), "", 100)  # type: ignore[arg-type]
    truth, deviation = len(sizes), found.objects_variance**0.5
    print(shape, truth, round(found.sizes.objects), round(deviation), listing.pages)
    assert abs(found.sizes.objects - truth) <= 3 * deviation
    assert abs(found.sizes.size_bytes - sum(sizes.values())) <= 3 * found.bytes_variance**0.5
    assert deviation <= 0.25 * truth
    assert listing.pages <= 130
