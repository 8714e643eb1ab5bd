"""Repeated names in an index: the last entry counts, for any number of names."""

import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from cafcat.errors import StoreFailed
from cafcat.formats.repeats import SupersededNames


def expected(names: Iterable[bytes]) -> set[int]:
    """Return the superseded entries, computed with a dict."""
    last: dict[bytes, int] = {}
    superseded = set()
    for ordinal, name in enumerate(names):
        if name in last:
            superseded.add(last[name])
        last[name] = ordinal
    return superseded


def found(names: list[bytes]) -> set[int]:
    superseded = SupersededNames(names)
    return {ordinal for ordinal in range(len(names)) if ordinal in superseded}


@pytest.mark.parametrize("names", [[], [b"a"], [b"a", b"b", b"ab", b""], [b"%d" % n for n in range(5000)]])
def test_without_repeats_nothing_is_superseded(names: list[bytes]) -> None:
    assert not SupersededNames(names)
    assert found(names) == set()


@pytest.mark.parametrize("distinct", [1, 2, 100, 4999])
def test_all_but_the_last_of_a_name_are_superseded(distinct: int) -> None:
    names = [b"%d" % (n * n % distinct) for n in range(5000)]
    assert SupersededNames(names)
    assert found(names) == expected(names)


@pytest.mark.parametrize("distinct", [540_000, 270_000, 1])
def test_more_than_half_a_million_names_go_through_a_temporary_file(distinct: int) -> None:
    names = [b"%d" % (n % distinct) for n in range(540_001)]
    assert found(names) == expected(names)


def test_no_room_for_the_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(StoreFailed, match=r"temporary file.*TMPDIR"):
        SupersededNames(b"%d" % n for n in range(540_000))
