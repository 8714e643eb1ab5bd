"""The installed wheel works, in a venv of its own, away from this folder."""

import ctypes
import os
import platform
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cafcat.native.library import FILE_NAME, library
from tests.worlds.native import needs_library

ROOT = Path(__file__).parents[2]
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


@pytest.mark.slow
def test_the_wheel_alone_ingests_and_gives_back(tmp_path: Path, empty_database_url: str) -> None:
    subprocess.run([*PIP, "wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)], check=True)
    [wheel] = tmp_path.glob("cafcat-*.whl")
    assert "cafcat/serve/openapi.json" in zipfile.ZipFile(wheel).namelist()
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    subprocess.run([str(venv / "bin" / "python"), *PIP[1:], "install", str(wheel)], check=True)
    (tmp_path / "in").write_bytes(b"hello")
    environment = os.environ | {"CAFCAT_DATABASE_URL": empty_database_url, "CAFCAT_HOME": str(tmp_path / "home")}

    def run(*arguments: str) -> bytes:
        command = [str(venv / "bin" / "cafcat"), *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True).stdout

    run("db", "init")
    run("ingest", "in")
    assert run("cat", "in") == b"hello"


@needs_library
@pytest.mark.slow
@pytest.mark.skipif(platform.system() != "Linux", reason="zig makes wheels for Linux")
def test_the_library_in_a_wheel_by_zig_finds_the_instructions_of_the_processor(tmp_path: Path) -> None:
    environment = os.environ | {"CAFCAT_BUILD": "zig"}
    command = [*PIP, "wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, env=environment)
    [wheel] = tmp_path.glob("cafcat-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        by_zig = ctypes.CDLL(archive.extract(f"cafcat/native/{FILE_NAME}", tmp_path))
    here = library()
    assert here is not None
    assert by_zig.cafcat_native_version() == here.cafcat_native_version()
    assert by_zig.cafcat_instructions() == here.cafcat_instructions() > 0
