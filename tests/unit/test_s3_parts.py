"""The sizes of parts of multipart uploads, calculated without a server."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cafcat.errors import InvalidInput
from cafcat.model import MAX_CHUNK_BYTES
from cafcat.stores.kind import UPLOAD_MEMORY
from cafcat.stores.s3.parts import MAX_PARTS, PartPlan, plan_parts

MIB = 1 << 20


def test_the_largest_chunk_fits_the_limits_of_s3_by_default() -> None:
    plan = plan_parts(UPLOAD_MEMORY)
    assert plan == PartPlan(16 * MIB, 8)
    assert plan.memory_bytes <= UPLOAD_MEMORY == 256_000_000
    assert -(-MAX_CHUNK_BYTES // plan.part_bytes) == 1908 <= MAX_PARTS


@given(memory=st.integers(16_000_000, 10**10), largest=st.integers(1, 5 * 10**12))
def test_every_plan_keeps_the_limits_of_s3_and_of_the_memory(memory: int, largest: int) -> None:
    try:
        plan = plan_parts(memory, largest)
    except InvalidInput:
        least = max(5 * MIB, -(-largest // MAX_PARTS))
        assert memory < 2 * (least + MIB)
        return
    assert 5 * MIB <= plan.part_bytes <= 5 << 30
    assert plan.part_bytes * MAX_PARTS >= largest
    assert 1 <= plan.in_flight <= 8
    assert plan.memory_bytes <= memory


@pytest.mark.parametrize(
    ("memory", "largest", "plan"),
    [
        (16_000_000, 32_000_000_000, PartPlan(5 * MIB, 2)),
        (100_000_000, 32_000_000_000, PartPlan(10 * MIB, 8)),
        (256_000_000, 5_000_000_000_000, None),
        (2_000_000_000, 5_000_000_000_000, PartPlan(477 * MIB, 2)),
    ],
)
def test_less_memory_means_smaller_parts_and_then_fewer(memory: int, largest: int, plan: PartPlan | None) -> None:
    if plan is None:
        with pytest.raises(InvalidInput, match="upload_memory"):
            plan_parts(memory, largest)
    else:
        assert plan_parts(memory, largest) == plan
