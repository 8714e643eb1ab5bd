"""What a command loads that needs no S3."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import Cafcat

LISTED = """
import sys
from cafcat.cli.app import run
code = run(sys.argv[1:])
found = {"boto3", "botocore", "obstore", "urllib3", "pyarrow", "tarfile"} & set(sys.modules)
sys.exit(f"loaded: {found}" if found else code)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ("ingest", "tree"),
        ("get", "tree/a", "-o", "copy", "-f"),
        ("cat", "tree/a", "tree/b"),
        ("extract", "-C", "out"),
        ("ls", "-R", "--json"),
        ("locate", "tree/a"),
        ("url", "tree/a"),
        ("recover",),
        ("config",),
    ],
    ids=lambda arguments: arguments[0],
)
def test_folders_load_nothing_of_s3(cafcat: Cafcat, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "tree").mkdir()
    for name in ("a", "b"):
        (tmp_path / "tree" / name).write_bytes(b"content")
    cafcat("ingest", "tree")
    command = [sys.executable, "-c", LISTED, *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=cafcat.environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
