"""Computes the shapes of plots, as plain numbers for SVG. `templates/plots.html` draws them."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

__all__ = ["Bar", "Part", "bars", "dead_areas", "merged", "parts"]


_LEAST_BARS: Final = 12
"""Fewer bars are as narrow as this many."""


class Bar(NamedTuple):
    """A vertical bar.

    Attributes:
        x: Left edge.
        height: Its height, from 0 to the height of the plot.
        width: Its width.
    """

    x: float
    height: float
    width: float


class Part(NamedTuple):
    """A part of a horizontal bar.

    Attributes:
        x: Left edge.
        width: Its width.
        kind: Name of its colour in the style sheet.
    """

    x: float
    width: float
    kind: str


def bars(values: Sequence[float], width: float, height: float) -> list[Bar]:
    """Return bars for values, the highest of which has the full height.

    Args:
        values: The values, from left to right.
        width: Width of the plot.
        height: Height of the plot.
    """
    most = max(values, default=0) or 1
    step = width / max(len(values), _LEAST_BARS)
    # A small value must not look like none.
    heights = [max(value / most * height, 1.5) if value else 0.0 for value in values]
    return [Bar(round(n * step, 2), round(tall, 2), round(step * 0.8, 2)) for n, tall in enumerate(heights)]


def parts(values: Iterable[tuple[str, float]], width: float) -> list[Part]:
    """Return the parts of a horizontal bar for shares of a whole. Shares of 0 are left out.

    Args:
        values: Name of the colour and value of each share, from left to right.
        width: Width of the bar.
    """
    given = [(kind, value) for kind, value in values if value > 0]
    whole = sum(value for _, value in given) or 1
    found, x = [], 0.0
    for kind, value in given:
        found.append(Part(round(x, 2), round(value / whole * width, 2), kind))
        x += value / whole * width
    return found


def merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans of bytes in order. Spans that overlap or touch each other become one."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def dead_areas(spans: Sequence[tuple[int, int]], size_bytes: int, width: float) -> list[Part]:
    """Return the areas of spans on a map of a chunk, to scale. Areas closer than a pixel become one.

    Args:
        spans: Spans of bytes, in order.
        size_bytes: Size of the chunk.
        width: Width of the map.
    """
    scale = width / max(size_bytes, 1)
    edges: list[list[float]] = []
    for start, end in spans:
        left, right = start * scale, max(end * scale, start * scale + 1)
        if edges and left - edges[-1][1] < 1:
            edges[-1][1] = max(right, edges[-1][1])
        else:
            edges.append([left, right])
    return [Part(round(left, 2), round(min(right, width) - left, 2), "dead") for left, right in edges]
