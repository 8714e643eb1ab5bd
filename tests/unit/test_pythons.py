"""The interpreters that `make test-all-pythons` finds, and the libraries for each of them."""

import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.pythons import TOP, find, main, supported_minors

BINDINGS = {"plyvel", "plyvel-ci", "plyvel-next"}


def interpreter(path: Path, version: str) -> None:
    """Write a program that prints this version as an interpreter does; "": one that fails, like a shim of pyenv."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {version}\n" if version else "#!/bin/sh\nexit 127\n")
    path.chmod(0o755)


def test_the_newest_of_each_version_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setattr("tests.pythons.supported_minors", lambda: [(3, 81), (3, 82), (3, 83), (3, 84)])
    versions = tmp_path / "pyenv" / "versions"
    interpreter(tmp_path / "bin" / "python3.81", "3 81 2 final")
    interpreter(versions / "3.81.9" / "bin" / "python3", "3 81 9 final")
    interpreter(versions / "3.81.10" / "bin" / "python3", "3 81 10 final")
    interpreter(tmp_path / "bin" / "python3.82", "")
    interpreter(versions / "3.83.0" / "bin" / "python3", "3 83 0 final")
    interpreter(versions / "3.84.0rc1" / "bin" / "python3", "3 84 0 candidate")
    interpreter(versions / "3.84.1" / "bin" / "python3", "3 8 1 final")
    assert [(python.minor, python.path) for python in find()] == [
        ("3.81", str(versions / "3.81.10" / "bin" / "python3")),
        ("3.83", str(versions / "3.83.0" / "bin" / "python3")),
    ]
    assert main(["--list", "--newest"]) == 0
    assert capsys.readouterr().out == f"3.83\t{versions / '3.83.0' / 'bin' / 'python3'}\n"


def test_every_supported_python_gets_one_binding_of_leveldb() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    extra = [Requirement(line) for line in project["optional-dependencies"]["databundle"]]
    bindings = [requirement for requirement in extra if requirement.name in BINDINGS]
    assert supported_minors()[0] == (3, 11)
    for major, minor in supported_minors():
        for platform, machine in (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64")):
            here = {
                "python_version": f"{major}.{minor}",
                "sys_platform": platform,
                "platform_machine": machine,
            }
            chosen = [one.name for one in bindings if one.marker is None or one.marker.evaluate(here)]
            assert len(chosen) == 1, (here, chosen)


def test_the_extra_gs_brings_the_libraries_that_send_the_requests_of_google_auth() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    [google_auth] = map(Requirement, project["optional-dependencies"]["gs"])
    lines = [Requirement(line) for line in requires("google-auth") or ()]
    markers = [(line.name, line.marker) for line in lines if line.marker is not None]
    brought = {
        name for name, marker in markers for extra in google_auth.extras if marker.evaluate({"extra": extra})
    }
    assert {"packaging", "urllib3"} <= brought
