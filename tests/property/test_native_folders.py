"""The native part lists folders and packs files exactly as Python does, in any tree, also while files change."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.worlds.memory import in_memory
from tests.worlds.native import needs_library
from tests.worlds.native_packing import check_tree, make_tree

pytestmark = needs_library


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    with in_memory() as folder:
        yield folder


@given(seed=st.integers(0, 2**32))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_a_random_tree(root: Path, seed: int) -> None:
    make_tree(root / "tree", Random(seed))
    check_tree(root / "tree", Random(seed + 1))
