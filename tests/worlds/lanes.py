"""The lanes of tests: markers for the tests that `make test` and `make test-fast` leave out.

* `slow`: takes long, or repeats what a faster test shows in a sample.
* `covering`: a test with several parameters. `make test` runs some of all combinations, in which each value of each
  parameter occurs at least once. The other combinations are marked `slow`.
* `s3`: uses the S3 server. This module adds the marker.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["add_markers", "covering_set"]

Value = tuple[tuple[str, ...], tuple[object, ...]]
"""The names of a parameter, and the identities of its values."""


def add_markers(items: Iterable[pytest.Item]) -> None:
    """Add the markers `slow` and `s3` to the tests that need them."""
    covering = defaultdict[str, list[pytest.Function]](list)
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        if "s3_server" in item.fixturenames:
            item.add_marker("s3")
        if item.get_closest_marker("covering") and not item.get_closest_marker("slow"):
            covering[item.nodeid.split("[")[0]].append(item)
    for group in covering.values():
        if len(group) > 1:
            mark_all_but_covering(group)


def mark_all_but_covering(items: list[pytest.Function]) -> None:
    """Mark all combinations of one test as slow, except a set in which each value occurs."""
    chosen = covering_set([values_of(item) for item in items])
    for number, item in enumerate(items):
        if number not in chosen:
            item.add_marker("slow")


def values_of(item: pytest.Function) -> frozenset[Value]:
    """Return the values of a test's parameters. The names of one `parametrize` are one parameter."""
    values = item.callspec.params
    alone = set(values)
    found = set[Value]()
    for mark in item.iter_markers("parametrize"):
        given = mark.args[0]
        names = tuple(given.replace(",", " ").split() if isinstance(given, str) else given)
        found.add((names, tuple(id(values[name]) for name in names)))
        alone -= set(names)
    return frozenset(found | {((name,), (id(values[name]),)) for name in alone})


def covering_set(combinations: list[frozenset[Any]]) -> set[int]:
    """Return the numbers of some combinations in which every value of every parameter occurs.

    Each chosen combination has as many values that did not occur before as possible; the first of several such
    combinations is chosen.
    """
    missing = set().union(*combinations)
    chosen = set[int]()
    while missing:
        best = max(range(len(combinations)), key=lambda number: len(combinations[number] & missing))
        chosen.add(best)
        missing -= combinations[best]
    return chosen
