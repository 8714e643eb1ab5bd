"""Ranges of paths: the same paths in disjoint ranges."""

import itertools
import re

from hypothesis import given
from hypothesis import strategies as st

from cafcat.catalog.files.ranges import PathRange, disjoint, prefix_range, scope_ranges
from cafcat.catalog.files.scope import PathScope

PATHS = [f"{first}{second}" for first in ("a", "b", "a/", "b/") for second in ("", "a", "b", "a/b", "\U0010ffff")]
EDGES = st.sampled_from(sorted(PATHS))
RANGES = st.builds(PathRange, EDGES, EDGES, st.sampled_from([None, "^a.*$", "^b.*$", "^.*b$"]))


def has(ranges: list[PathRange], path: str) -> bool:
    return any(low <= path < high and (not regex or re.search(regex, path)) for low, high, regex in ranges)


@given(ranges=st.lists(RANGES.filter(lambda one: one.low < one.high), max_size=6))
def test_disjoint_ranges_have_the_same_paths(ranges: list[PathRange]) -> None:
    found = disjoint(ranges)
    assert found == sorted(found)
    assert all(one.high <= other.low for one, other in itertools.pairwise(found))
    for path in PATHS:
        assert has(found, path) == has(ranges, path)


def test_ranges_of_names() -> None:
    everything = scope_ranges(PathScope("", None))
    assert [has(everything, path) for path in PATHS] == [True] * len(PATHS)
    folder = disjoint(scope_ranges(PathScope("a/", "a")))
    assert {path for path in PATHS if has(folder, path)} == {
        path for path in PATHS if path == "a" or path[:2] == "a/"
    }
    assert has([prefix_range("")], "\U0010ffff" * 512)
    assert not has([prefix_range("a")], "b")
