"""Rows of the table of results, and how they are formatted."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

HEAD = ("work", "peer", "target", "ratio", "absolute", "met")


class Target(NamedTuple):
    """A bound for a ratio: an upper or a lower one; None: no bound."""

    bound: float | None
    at_least: bool = False

    def __str__(self) -> str:
        return "—" if self.bound is None else f"{'≥' if self.at_least else '≤'} {self.bound:g} x"

    def met(self, ratio: float) -> bool | None:
        if self.bound is None:
            return None
        return ratio >= self.bound if self.at_least else ratio <= self.bound


NO_TARGET = Target(None)
"""Less is better, but there is no bound."""


def at_most(bound: float) -> Target:
    return Target(bound)


def at_least(bound: float) -> Target:
    return Target(bound, at_least=True)


class Row(NamedTuple):
    """A row of the table. ratios: of cafcat to the peer, by round. missing: the reason if there are no ratios."""

    name: str
    work: str
    peer: str
    target: Target
    ratios: Sequence[float] = ()
    absolute: str = ""
    missing: str = ""

    @property
    def ratio(self) -> float | None:
        """The median ratio."""
        return statistics.median(self.ratios) if self.ratios else None

    @property
    def met(self) -> str:
        """ "yes" or "no" for the median ratio, or "—" without a bound."""
        met = None if self.ratio is None else self.target.met(self.ratio)
        return "—" if met is None else "yes" if met else "no"

    def cells(self) -> tuple[str, ...]:
        ratio = figure(self.ratios) if self.ratios else self.missing
        return (self.work, self.peer, str(self.target), ratio, self.absolute or "—", self.met)


def number(value: float) -> str:
    """Return a number with about three digits, without an exponent: 0.048, 0.52, 1.30, 61.2, 5,400."""
    if value and abs(value) < 0.1:
        return f"{value:.3f}"
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:,.{digits}f}"


def figure(values: Sequence[float], unit: str = "") -> str:
    """Return median and range: "0.52 [0.48-0.60]", with a unit "1.20 s [1.10-1.31]"."""
    unit = f" {unit}" if unit else ""
    return f"{number(statistics.median(values))}{unit} [{number(min(values))}-{number(max(values))}]"


def pair_ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Return our values relative to theirs, by round: noise in a round affects both sides."""
    return [mine / other for mine, other in zip(ours, theirs, strict=True)]


def better_of(measured: dict[str, list[float]]) -> str:
    """Return the name with the lowest median."""
    return min(measured, key=lambda name: statistics.median(measured[name]))


def markdown(rows: Sequence[Row]) -> str:
    lines = [_line(HEAD), _line(["---"] * len(HEAD))]
    return "\n".join([*lines, *(_line(row.cells()) for row in rows)])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
