"""Shapes of the console's plots."""

import pytest

from cafcat.serve.console.plots import bars, base_line, dead_areas, merged, parts


def test_bars_are_to_scale_around_the_line_of_zero() -> None:
    assert [bar.height for bar in bars([1, 2, 4], 120, 100)] == [25, 50, 100]
    up, none, down = bars([30, 0, -10], 120, 100)
    assert base_line([30, 0, -10], 100) == 75
    assert (up.y, up.height, none.height, down.y, down.height) == (0, 75, 0, 75, 25)


@pytest.mark.parametrize("values", [[], [0.0], [0.0, 0.0]])
def test_no_value_has_no_bar(values: list[float]) -> None:
    assert [bar for bar in bars(values, 120, 100) if bar.height] == []
    assert base_line(values, 100) == 100


def test_a_small_value_is_seen_and_stays_in_the_plot() -> None:
    _, small, below = bars([10**12, 1, -1], 120, 100)
    assert small.height == below.height == 1.5
    assert below.y + below.height <= 100


def test_parts_fill_the_bar() -> None:
    found = parts([("live", 3), ("none", 0), ("dead", 1)], 100)
    assert [(part.kind, part.x, part.width) for part in found] == [("live", 0, 75), ("dead", 75, 25)]
    assert parts([], 100) == parts([("live", 0)], 100) == []


def test_spans_are_merged_and_close_areas_joined() -> None:
    assert merged([(5, 9), (0, 2), (2, 5), (20, 30)]) == [(0, 9), (20, 30)]
    areas = dead_areas([(0, 10), (11, 20), (500, 501)], 1_000_000, 1000)
    assert [(area.x, area.width) for area in areas] == [(0, 1.5)]
    [area] = dead_areas([(999_999, 1_000_000)], 1_000_000, 1000)
    assert area.x + area.width <= 1000
