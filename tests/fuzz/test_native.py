"""Some thousand random indexes for the native part and Python (`make fuzz`: a million)."""

from random import Random

from tests.fuzz.native import compare, random_index
from tests.worlds.native import needs_library


@needs_library
def test_random_indexes_have_the_same_outcome() -> None:
    random = Random(7)
    outcomes = {compare(random_index(random)) for _ in range(3000)}
    assert outcomes == {"entries", "an error"}
