"""The modules that commands load."""

import re
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


LOADED = """
import sys
before = set(sys.modules)
from cafcat.cli.app import run
code = run(sys.argv[1:])
print(*sorted(set(sys.modules) - before), file=sys.stderr)
sys.exit(code)
"""

SERVED = """
import sys
import cafcat
from cafcat.cli.app import run
code = run(sys.argv[1:])
found = {"cafcat.serve", "starlette", "uvicorn", "prometheus_client", "httptools", "tarfile"} & set(sys.modules)
sys.exit(f"loaded: {found}" if found else code)
"""

INSTALLED = {"_cython", "_sysconfigdata", "annotated_doc", "cafcat", "cython_runtime", "google_crc32c", "psycopg"}
INSTALLED |= {"psycopg_binary", "shellingham", "typer", "typing_extensions"}
"""Packages outside the standard library that may be loaded: those of typer and psycopg, and their dependencies."""
NOT_WANTED = {"hashlib", "multiprocessing", "pydoc", "secrets", "sqlite3", "tomllib", "unittest", "xml"}
"""Packages of the standard library that must not be loaded."""
OWN = {
    "": "catalog catalog_queries cli embedded errors events files_by_name model packed_files progress reading "
    "session settings stores support",
    "catalog.": "by_key catalog connection database_url files files.lookup files.scope locking schema "
    "silence stores stores.stores",
    "cli.": "app call choosing errors groups output reading reading.get stopping",
    "embedded.": "connecting",
    "reading.": "content durable_files output_errors outputs reader replicas request saving",
    "settings.": "database settings stores values",
    "stores.": "base keys kind local presence registry",
    "stores.local.": "errors files kind store upload",
    "support.": "arguments checksums forking new_file paging paths plugins private quantities syncing",
}
"""Modules of cafcat that `get` may load, by package."""


def test_get_loads_only_what_it_needs(cafcat: Cafcat, tmp_path: Path) -> None:
    """Each module takes some milliseconds to load. An addition to these lists must be worth that time."""
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/a").write_bytes(b"content")
    cafcat("ingest", "tree")
    command = [sys.executable, "-c", LOADED, "get", "tree/a", "-o", "copy"]
    done = subprocess.run(command, cwd=tmp_path, env=cafcat.environment, capture_output=True, text=True)
    assert (done.returncode, (tmp_path / "copy").read_bytes()) == (0, b"content"), done.stderr
    loaded = set(done.stderr.split())
    own = {f"cafcat.{room}{name}" for room, names in OWN.items() for name in names.split()}
    assert sorted({name for name in loaded if name.startswith("cafcat.")} - own) == []
    packages = {re.sub("^(_cython|_sysconfigdata)_.*", r"\1", name.split(".")[0]) for name in loaded}
    assert packages - sys.stdlib_module_names <= INSTALLED
    assert not packages & NOT_WANTED


def test_ctrl_c_counts_from_the_start() -> None:
    """Python prints a traceback for Ctrl-C during imports, until `main` handles the signal."""
    script = "import sys; before = set(sys.modules); import cafcat.__main__; print(*set(sys.modules) - before)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert set(loaded.split()) == {"cafcat", "cafcat.__main__"}


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


@pytest.mark.parametrize(
    "arguments", [("get", "tree/a", "-o", "copy"), ("ls",)], ids=lambda arguments: arguments[0]
)
def test_nothing_of_the_server_is_loaded(cafcat: Cafcat, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/a").write_bytes(b"content")
    cafcat("ingest", "tree")
    command = [sys.executable, "-c", SERVED, *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=cafcat.environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_small_ingest_loads_no_modules_for_processes(cafcat: Cafcat, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/a").write_bytes(b"content")
    command = [sys.executable, "-c", LOADED, "ingest", "tree"]
    done = subprocess.run(command, cwd=tmp_path, env=cafcat.environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not {"multiprocessing", "concurrent.futures.process"} & set(done.stderr.split())
