"""The Python with which `make test-s3` runs a server that needs a new one."""

import sys
from pathlib import Path

import pytest

from tests import pythons
from tests.pythons import Python
from tests.s3_servers import base
from tests.s3_servers.base import Missing
from tests.s3_servers.kinds import KINDS
from tests.s3_servers.suites import newest_python

LOCALSTACK = KINDS["localstack"]


def test_a_server_that_needs_a_new_python_gets_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Python((3, 11, 7), "/old"), Python((3, 13, 0), "/new")]
    monkeypatch.setattr(pythons, "find", lambda: found)
    assert newest_python(LOCALSTACK) == "/new"
    found.pop()
    with pytest.raises(Missing, match=r"LocalStack needs Python 3\.12 or newer"):
        newest_python(LOCALSTACK)


def test_old_python_with_the_package_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(base, "VENVS", tmp_path)
    monkeypatch.setattr(base, "NEW_PYTHON", sys.version_info[:2])
    assert LOCALSTACK.python_with("json") == sys.executable
    monkeypatch.setattr(base, "NEW_PYTHON", (sys.version_info[0], sys.version_info[1] + 1))
    with pytest.raises(Missing):
        LOCALSTACK.python_with("json")
    assert KINDS["moto"].python_with("json") == sys.executable
