"""Archives that the original programs of each format wrote: their paths, and which ones other projects publish."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

__all__ = ["FIXTURES", "FIXTURES_OF_OTHERS", "VECTORS", "needs_fixtures", "vector_path", "with_fixtures"]

VECTORS = Path(__file__).parents[2] / "vectors"
"""Part of this repository; its README.md names the programs."""
FIXTURES = Path(__file__).parents[4] / "shared" / "vectors"
"""Test data that other projects publish. It is not part of this repository."""
FIXTURES_OF_OTHERS = [
    "car/gocar/badheaderlength.car",
    "car/gocar/sample-corrupt-pragma.car",
    "car/gocar/sample-v1-noidentity.car",
    "car/gocar/sample-v1.car",
    "car/gocar/sample-v2-indexless.car",
    "car/gocar/sample-wrapped-v2.car",
    "car/gocar/simple-unixfs.car",
    "car/ipld_spec/carv1-basic.car",
    "car/ipld_spec/carv2-basic.car",
]

needs_fixtures = pytest.mark.skipif(
    not FIXTURES.is_dir(), reason="FIXTURES OF OTHER PROJECTS: ../shared/vectors is missing"
)


def vector_path(name: str) -> Path:
    """Return the path of a vector, by its name below either folder."""
    return (VECTORS if (VECTORS / name).exists() else FIXTURES) / name


def with_fixtures(names: Iterable[str]) -> list[Any]:
    """Return names as parameters of a test: those of fixtures are skipped where the fixtures are absent.

    Args:
        names: Names of vectors, or of vectors of CARs without `car/` and suffix.
    """
    theirs = {*FIXTURES_OF_OTHERS, *(name[4:].removesuffix(".car") for name in FIXTURES_OF_OTHERS)}
    return [pytest.param(name, marks=needs_fixtures) if name in theirs else name for name in names]
