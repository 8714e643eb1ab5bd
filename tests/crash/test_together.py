"""A short run of commands at the same time, and proof that its check notices losses."""

from pathlib import Path

import pytest

from tests.crash.together import World, explore


@pytest.mark.slow
def test_a_short_run_finds_nothing_and_notices_losses(tmp_path: Path) -> None:
    world = explore(tmp_path, seed=1, rounds=1, seconds=10)
    assert world.found == []
    assert world.codes.total() > 10
    packed = [path for path, possible in world.possible.items() if possible != {None}]
    world.possible[packed[0]] = {None}
    world.possible["writer-1/lost"] = {"its SHA-256"}
    assert {finding.partition(" has content ")[0] for finding in _findings(world)} == {packed[0], "writer-1/lost"}
    for archive in world.store.glob("*-*.*"):
        archive.unlink()
    assert "verify --level data ended with 5" in _findings(world)
    world.run(["db", "stop"])


def _findings(world: World) -> list[str]:
    world.found.clear()
    world.check()
    return world.found
