"""Cutting a source into parts: every name is in exactly one part, whatever the names are."""

import io
import os
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cafcat.sources.cutting import Level, cut_tree
from cafcat.sources.kind import SourceContext
from cafcat.sources.lists.name_list import NameListSource
from cafcat.sources.lists.ranges import blocks_between
from cafcat.sources.local.directory import DirectorySource
from cafcat.sources.names import names_in
from cafcat.sources.parts import WHOLE, Part

PAGE = 7
"""Number of names in one answer of the tree: small, so that few names show what a bucket shows with thousands."""

names = st.text(st.sampled_from("aab/-.0~\x01ü😀"), min_size=1, max_size=12)


class Names:
    """Sorted names, answered as a server answers: by pages, and by folders.

    is_local: answered as a file system answers: a look shows a whole folder from its beginning.
    """

    def __init__(self, names: Sequence[str], *, is_local: bool = False) -> None:
        self.names = sorted(set(names))
        self.is_local = is_local
        self.looks = 0

    def level(self, folder: str, after: str | None) -> Level:
        self.looks += 1
        found: dict[str, None] = {}
        for name in self.names:
            if name.startswith(folder) and (after is None or name > after or self.is_local):
                first, slash, _ = name[len(folder) :].partition("/")
                found[folder + first + slash] = None
        count = len(found) if self.is_local else PAGE
        return Level(sorted(found)[:count], len(found) <= count)

    def next_name(self, folder: str, after: str) -> str | None:
        self.looks += 1
        following = self.names[bisect_right(self.names, after) :]
        return next((name for name in following if name.startswith(folder)), None)


@given(
    st.lists(names, max_size=60), st.integers(1, 12), st.tuples(st.none() | names, st.none() | names), st.booleans()
)
def test_each_name_is_in_one_part(
    found: list[str], wanted: int, ends: tuple[str | None, str | None], is_local: bool
) -> None:
    after, through = ends
    assume(after is None or through is None or after < through)
    whole = Part(after, through)
    tree = Names(found, is_local=is_local)
    parts = cut_tree(tree, "", whole, wanted)
    for name in tree.names:
        assert sum(part.contains(name) for part in parts) == whole.contains(name), name
    assert (parts[0].after, parts[-1].through) == (after, through)
    assert all(part.after is None or part.through is None or part.after < part.through for part in parts)
    assert all(left.through == right.after for left, right in pairwise(parts))
    assert len(parts) <= 2 * wanted
    assert tree.looks <= 16 * wanted


@pytest.mark.parametrize(
    ("found", "part"),
    [
        (
            [f"{folder}/{n:04}" for folder in "ab" for n in range(70)] + [f"c{n:05}" for n in range(300)],
            Part("a/0000", "c00040"),
        ),
        ([f"x/{number:06}" for number in range(400)], Part("x/000010", "x/000350")),
        ([f"x/d{number:03}/{n:04}" for number in range(30) for n in range(20)], Part("x/d001/0005", "x/d020/0010")),
    ],
    ids=["page beyond the end", "one folder", "folder of folders"],
)
def test_the_rest_of_a_long_part_is_cut_within_its_ends(found: list[str], part: Part) -> None:
    parts = cut_tree(Names(found), "", part, 8)
    assert (parts[0].after, parts[-1].through) == part
    assert all(left.through == right.after for left, right in pairwise(parts))
    counts = [sum(smaller.contains(name) for name in found) for smaller in parts]
    assert sum(counts) == sum(part.contains(name) for name in found)
    assert len([count for count in counts if count]) >= 4


@pytest.mark.parametrize(
    "found",
    [
        [f"{number:08}" for number in range(2000)],
        [f"d{number % 40:02}/{number:05}.jpg" for number in range(2000)],
        [f"a/b/c/{number % 7}/{number % 90}/x{number}" for number in range(2000)],
        [f"{'deep/' * 9}{number:04x}" for number in range(2000)],
        [f"d{number:02}/{key}" for number in range(40) for key in ("", "a", "b")],
    ],
    ids=["flat", "folders", "nested", "deep", "markers"],
)
def test_parts_have_similar_sizes(found: list[str]) -> None:
    parts = cut_tree(Names(found), "", WHOLE, 16)
    counts = [sum(part.contains(name) for name in found) for part in parts]
    assert len(parts) >= 8
    assert max(counts) <= len(found) * 0.35  # a worker divides a long shard again


@given(st.lists(st.text(st.sampled_from("ab/é"), min_size=1, max_size=9), max_size=30), st.integers(1, 9))
def test_each_line_of_a_list_is_in_one_part(lines: list[str], wanted: int) -> None:
    data = "\n".join(lines).encode()
    step = max(1, len(data) // wanted)
    cuts = [str(offset) for offset in range(step, len(data), step)]
    parts = [Part(*ends) for ends in zip([None, *cuts], [*cuts, None], strict=True)]
    found = [
        name
        for part in parts
        for name in names_in(blocks_between(io.BytesIO(data), part, b"\n"), "list", null_separated=False)
    ]
    assert found == lines


def test_parts_of_a_folder_have_all_its_files(tmp_path: Path) -> None:
    for name in ("a", "a-b/1", "a-b/2", "a.txt", "a/x/1", "a/x/2", "a/y", "a0", "b/1", "ü/ö"):
        if name != "a":
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(name)
    (tmp_path / "b" / "link").symlink_to("1")
    os.mkdir(tmp_path / "empty")
    whole = list(DirectorySource(str(tmp_path)).files())
    parts = DirectorySource(str(tmp_path)).cut(WHOLE, 6)
    assert len(parts) > 2
    assert [file for part in parts for file in DirectorySource(str(tmp_path), part=part).files()] == whole


def test_parts_of_a_list_have_all_its_files(tmp_path: Path) -> None:
    paths = [tmp_path / f"file{number}" for number in range(20)]
    for path in paths:
        path.write_text(path.name)
    listing = tmp_path / "list"
    listing.write_text("".join(f"{path}\n" for path in paths))
    parts = NameListSource(str(listing)).cut(WHOLE, 4)
    found = [
        file for part in parts for file in NameListSource(str(listing), context=SourceContext(part=part)).files()
    ]
    assert len(parts) >= 4
    assert found == list(NameListSource(str(listing)).files())
