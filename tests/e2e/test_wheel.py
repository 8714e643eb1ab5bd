"""The installed wheel works, in a venv of its own, away from this folder."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_wheel_alone_ingests_and_gives_back(tmp_path: Path, empty_database_url: str) -> None:
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)], check=True)
    [wheel] = tmp_path.glob("cafcat-*.whl")
    assert "cafcat/serve/openapi.json" in zipfile.ZipFile(wheel).namelist()
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    pip[0] = str(venv / "bin" / "python")
    subprocess.run([*pip, "install", str(wheel)], check=True)
    (tmp_path / "in").write_bytes(b"hello")
    environment = os.environ | {"CAFCAT_DATABASE_URL": empty_database_url, "CAFCAT_HOME": str(tmp_path / "home")}

    def run(*arguments: str) -> bytes:
        command = [str(venv / "bin" / "cafcat"), *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True).stdout

    run("db", "init")
    run("ingest", "in")
    assert run("cat", "in") == b"hello"
