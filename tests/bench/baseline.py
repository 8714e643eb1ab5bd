"""A stored run for comparison. Only ratios are compared, because absolute times differ from day to day."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.table import Row, number

FILE = Path(__file__).with_name("baseline.json")
WORSE = 1.2
"""The factor by which a ratio must be worse for a warning."""


def warnings(rows: Sequence[Row], stored: Mapping[str, Any], conditions: Mapping[str, Any]) -> list[str]:
    """Return sentences about rows that are worse than in the stored run, or that cannot be compared."""
    warned = []
    ratios = stored.get("ratios", {})
    if ratios and stored.get("conditions") != conditions:
        warned.append(
            f"The baseline was measured with {_shown(stored['conditions'])}, this with {_shown(conditions)}."
        )
    for row in rows:
        if row.ratio is not None and row.name not in ratios:
            warned.append(f"{row.name} is not in the baseline: it cannot be compared.")
        elif row.ratio is not None:
            warned += _warning(row, ratios[row.name])
    return warned


def _warning(row: Row, before: float) -> list[str]:
    assert row.ratio is not None
    worse = before / row.ratio if row.target.at_least else row.ratio / before
    if worse < WORSE:
        return []
    change = f"{number(row.ratio)} x {row.peer}, where the baseline has {number(before)} x"
    return [f"WORSE by {worse - 1:.0%}: {row.name} ({row.work}) is {change}."]


def load(file: Path) -> dict[str, Any]:
    """Return the stored run; an empty dict if there is no file."""
    return dict(json.loads(file.read_text())) if file.exists() else {}


def save(file: Path, rows: Sequence[Row], conditions: Mapping[str, Any]) -> None:
    """Store a run. Rows that it did not measure keep their stored ratios, if the conditions are equal."""
    stored = load(file)
    ratios = stored.get("ratios", {}) if stored.get("conditions") == conditions else {}
    ratios |= {row.name: round(row.ratio, 3) for row in rows if row.ratio is not None}
    document = {"conditions": dict(conditions), "ratios": dict(sorted(ratios.items()))}
    file.write_text(json.dumps(document, indent=1) + "\n")


def _shown(conditions: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in conditions.items())
