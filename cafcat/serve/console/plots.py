"""Computes the shapes of plots, as plain numbers for SVG. `templates/plots.html` draws them."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

__all__ = ["Bar", "Part", "bars", "base_line", "dead_areas", "merged", "parts"]


_LEAST_BARS: Final = 12
"""Fewer bars are as narrow as this many."""


class Bar(NamedTuple):
    """A vertical bar.

    Attributes:
        x: Left edge.
        y: Upper edge.
        width: Its width.
        height: Its height; 0 for a value of 0.
    """

    x: float
    y: float
    width: float
    height: float


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


def base_line(values: Sequence[float], height: float) -> float:
    """Return the distance of the line of the value 0 from the upper edge of a plot."""
    low, high = min(0, *values, 0), max(0, *values, 0)
    return round(high / (high - low) * height, 2) if high > low else height


def bars(values: Sequence[float], width: float, height: float) -> list[Bar]:
    """Return bars for values, above the line of 0 or below it. They are as high as the plot together.

    Args:
        values: The values, from left to right.
        width: Width of the plot.
        height: Height of the plot.
    """
    low, high = min(0, *values, 0), max(0, *values, 0)
    base = base_line(values, height)
    step = width / max(len(values), _LEAST_BARS)
    found = []
    for n, value in enumerate(values):
        # A small value must not look like none.
        tall = max(abs(value) / ((high - low) or 1) * height, 1.5) if value else 0.0
        top = min(base, height - tall) if value < 0 else max(base - tall, 0)
        found.append(Bar(round(n * step, 2), round(top, 2), round(step * 0.8, 2), round(tall, 2)))
    return found


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
