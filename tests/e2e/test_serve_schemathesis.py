"""serve: schemathesis makes requests from the description, and compares the responses with it.

schemathesis is in the extra `test-clients`. Without it, the test is skipped.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import TREE, Cafcat
from tests.worlds.file_server import FileServer, serving
from tests.worlds.servers.s3_gateway import program

pytest.importorskip("uvicorn")

pytestmark = pytest.mark.slow

HOOKS = '''
"""Most requests name files that exist, and ranges and conditions that such files have."""

from zlib import crc32

import schemathesis

FILES = @FILES@
FOLDERS = ["tree", "tree/odd", "tree/folder"]
HEADERS = {
    "Range": ["bytes=0-0", "bytes=-1", "bytes=9999999-", "bytes=0-0,2-2"],
    "If-Match": ["*"],
    "If-None-Match": ["*"],
    "If-Modified-Since": ["Sat, 21 Nov 2026 10:00:03 GMT"],
    "If-Unmodified-Since": ["Sat, 21 Nov 2026 10:00:03 GMT"],
}


def one_of(values, drawn):
    """Return a value that depends on what was drawn; or what was drawn, in one of four cases."""
    number = crc32(repr(drawn).encode("utf-8", "backslashreplace"))
    return drawn if number % 4 == 0 else values[number // 4 % len(values)]


@schemathesis.hook
def map_case(context, case):
    if case.meta is not None and case.meta.generation.mode.is_positive:
        for name, values in (("path", FILES + FOLDERS), ("folder", FOLDERS)):
            if name in (case.path_parameters or {}):
                case.path_parameters[name] = one_of(values, case.path_parameters[name])
        for name in [name for name in HEADERS if name in (case.headers or {})]:
            drawn = case.headers[name]
            case.headers[name] = one_of(HEADERS[name], drawn)
            if crc32(repr(drawn).encode("utf-8", "backslashreplace")) // 64 % 2:
                for other in [other for other in case.headers if other != name]:
                    del case.headers[other]  # so that no other condition ends the request
                break
        paths = case.body["paths"] if isinstance(case.body, dict) and "paths" in case.body else case.body
        if isinstance(paths, list):
            paths[:] = [one_of(FILES, path) for path in paths]
    return case


@schemathesis.hook
def before_call(context, case, kwargs):
    kwargs["allow_redirects"] = False
'''


LINE = 500
"""Characters of a printed line that are shown."""
CONFIGURATION = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "304", "307", "308", "404", "412", "416"]
[checks.negative_data_rejection]
expected-statuses = ["400", "404", "405", "412", "413", "414"]
"""


def schemathesis(server: FileServer, folder: Path, *arguments: str) -> str:
    """Run schemathesis, which must find nothing, and return what it prints."""
    path = program("schemathesis")
    if path is None:
        pytest.skip("schemathesis is not installed: see the extra test-clients, and CAFCAT_TEST_PROGRAMS")
    files = [name for name in TREE if name != "tree/big.dat"]
    (folder / "hooks.py").write_text(HOOKS.replace("@FILES@", repr(files)))
    (folder / "schemathesis.toml").write_text(CONFIGURATION)
    command = [path, "--no-color", "run", f"{server.url}/openapi.json"]
    environment = os.environ | {"SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(folder), "NO_PROXY": "127.0.0.1"}
    done = subprocess.run([*command, *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, "\n".join(line[:LINE] for line in lines) + done.stderr
    return done.stdout


def test_responses_are_as_described(filled: Cafcat, tmp_path: Path) -> None:
    with serving(filled, tmp_path / "log") as server:
        printed = schemathesis(
            server, tmp_path, "--generation-deterministic", "--max-examples", "100", "--continue-on-failure"
        )
        assert re.search(r"[1-9]\d{3,} generated", printed), printed
        lines = server.lines()
    found = {line["status"] for line in lines if "status" in line}
    assert {200, 206, 304, 308, 400, 404, 405, 412, 416} <= found
    assert not [line for line in lines if "error" in line]
