"""A third-party format: found by its entry point, and used like any other."""

from pathlib import Path

import pytest

import cafcat
from cafcat.errors import InvalidInput
from cafcat.formats import registry

MODULE = """
from cafcat.formats.caf.format import CafFormat

class Mine(CafFormat):
    name = "mine"
    suffix = ".mine"

    def sniff(self, head, tail):
        return head.startswith(b"MINE")

MINE = Mine()
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package as pip does."""
    folder = tmp_path / "site"
    described = folder / "mine-1.0.dist-info"
    described.mkdir(parents=True)
    (folder / "mine_of_others.py").write_text(MODULE)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text("[cafcat.formats]\nmine = mine_of_others:MINE\n")
    monkeypatch.syspath_prepend(folder)


@pytest.mark.usefixtures("package")
def test_third_party_format_is_packed_read_and_repacked(local: cafcat.Repository, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a").write_bytes(b"MINE, all of it")
    local.ingest([tmp_path / "tree"], prefix="p", format="mine")
    [chunk] = local.chunks()
    assert (chunk.format, chunk.object_key) == ("mine", f"{chunk.uuid}.mine")
    [path] = [location.path for location in local.list()]
    assert local.read(path) == b"MINE, all of it"
    assert cafcat.inspect(Path(local.settings.store.removeprefix("file://")) / chunk.object_key).format == "mine"
    local.repack(chunks=[str(chunk.uuid)], format="car")
    assert {chunk.format for chunk in local.chunks() if chunk.state == "committed"} == {"car"}
    assert local.read(path) == b"MINE, all of it"


def test_error_for_an_unknown_format_names_the_known_ones(local: cafcat.Repository, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no format 'mine'") as raised:
        local.ingest([tmp_path], format="mine")
    assert all(name in str(raised.value) for name in registry.NAMES)
