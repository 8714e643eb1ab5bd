"""A third-party package with a store and a source, installed like by pip: a dist-info folder on sys.path."""

import shutil
from pathlib import Path

import pytest

__all__ = ["install", "package"]

ENTRY_POINTS = """\
[cafcat.stores]
file+gz = gzip_store:GZIP

[cafcat.sources]
zip = zip_source:ZIP
"""


def install(site: Path) -> Path:
    """Copy the package into a folder, which must be on sys.path to take effect. Return the folder."""
    described = site / "cafcat_example-1.0.dist-info"
    described.mkdir(parents=True)
    for module in ("gzip_store.py", "zip_source.py"):
        shutil.copy(Path(__file__).with_name(module), site)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: cafcat-example\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text(ENTRY_POINTS)
    return site


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the installed package."""
    site = install(tmp_path / "site")
    monkeypatch.syspath_prepend(site)
    return site
