"""Names in the catalog equal those of GNU tar, except for a leading "./"."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cafcat.sources.names import (
    WarnOnce,
    check_name,
    folder_prefix,
    member_name,
    prefixed,
    printable,
    strip_warning,
)
from tests.worlds.listeners import Heard

TYPED = {
    "a": ("a", ""),
    "a/": ("a", ""),
    "a/b/f": ("a/b/f", ""),
    "./a": ("a", ""),
    ".": ("", ""),
    "./": ("", ""),
    "a/./b//f": ("a/b/f", ""),
    "/": ("", "/"),
    "/etc/hosts": ("etc/hosts", "/"),
    "//etc": ("etc", "/"),
    "..": ("", "../"),
    "../a": ("a", "../"),
    "../../a": ("a", "../../"),
    "a/../b/f": ("b/f", "a/../"),
    "a/b/..": ("", "a/b/../"),
    "/a/../b": ("b", "/a/../"),
    "..a/b..": ("..a/b..", ""),
    "...": ("...", ""),
    "a/.../b": ("a/.../b", ""),
}


@pytest.mark.parametrize(("typed", "expected"), TYPED.items())
def test_typed_path_gives_the_name(typed: str, expected: tuple[str, str]) -> None:
    assert member_name(typed) == expected


@given(st.text(alphabet="a./", min_size=1, max_size=12))
def test_names_never_lead_elsewhere(typed: str) -> None:
    name, _ = member_name(typed)
    assert not name or all(part not in ("", ".", "..") for part in name.split("/"))
    assert member_name(name) == (name, "")


TYPED_FOR_TAR = ["a", "./a", "a/b", "a/b/f", "a//b", "a/./b", "../top/a", "a/../a/b", "a/b/../b/f", "./a/../a/b/f"]


@pytest.mark.skipif(shutil.which("tar") is None, reason="no tar on PATH")
@pytest.mark.parametrize("typed", [*TYPED_FOR_TAR, "ABSOLUTE", "ABSOLUTE/../top/a"])
def test_names_and_warning_equal_those_of_tar(tmp_path: Path, typed: str) -> None:
    top = tmp_path / "top"
    (top / "a" / "b").mkdir(parents=True)
    (top / "a" / "b" / "f").write_bytes(b"x")
    typed = typed.replace("ABSOLUTE", str(top))
    run = subprocess.run(
        ["tar", "-cf", "../archive.tar", typed],
        cwd=top,
        capture_output=True,
        check=True,
        env=os.environ | {"LC_ALL": "C"},
    )
    listed = subprocess.run(["tar", "-tf", "../archive.tar"], cwd=top, capture_output=True, check=True)
    members = [member.rstrip("/") for member in listed.stdout.decode().split("\n") if member]
    name, removed = member_name(typed)
    assert name == os.path.normpath(members[0])
    warning = run.stderr.decode().strip()
    assert warning == (f"tar: {strip_warning(removed)}" if removed else "")


def test_the_prefix_is_a_folder() -> None:
    names = [prefixed(prefix, "a/b") for prefix in ("", "p", "p/", "./p//q/", "/p", "../p", ".")]
    assert names == ["a/b", "p/a/b", "p/a/b", "p/q/a/b", "p/a/b", "p/a/b", "a/b"]
    assert prefixed("p", "") == "p"


def test_names_of_files_in_a_folder_begin_with_its_name() -> None:
    assert folder_prefix("a/b") == "a/b/"
    assert folder_prefix("") == ""


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("a", None),
        ("x" * 2048, None),
        ("ü" * 1024, None),
        ("new\nline", None),
        ("x" * 2049, "longer than 2,048 bytes (2,049)"),
        ("ü" * 1024 + "x", "longer than 2,048 bytes (2,049)"),
        ("", "empty"),
        ("a\0b", "NUL"),
        ("ü\0b", "NUL"),
        ("caf\udce9", "not valid UTF-8"),
        ("\ud800", "not valid UTF-8"),
    ],
)
def test_names_that_postgres_cannot_store_are_refused(path: str, reason: str | None) -> None:
    found = check_name(path)
    assert found is None if reason is None else found is not None and reason in found


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("plain name/ü/日本/😀", "plain name/ü/日本/😀"),
        ("no\u00a0break", "no\u00a0break"),
        ("back\\slash", "back\\slash"),
        (os.fsdecode(b"caf\xe9.txt"), "caf\\xe9.txt"),
        ("a\nb\tc\rd\x1b[31m\x7f\0", "a\\nb\\tc\\rd\\x1b[31m\\x7f\\x00"),
        ("\x85\u202e\u2028\ud800\U000e0001", "\\u0085\\u202e\\u2028\\ud800\\U000e0001"),
    ],
)
def test_names_in_messages_are_one_line_of_valid_utf8(path: str, expected: str) -> None:
    assert printable(path) == expected


@given(st.binary())
def test_any_name_can_be_printed(name: bytes) -> None:
    line = printable(os.fsdecode(name))
    assert line.encode().decode() == line
    assert len(line.splitlines()) <= 1


def test_repeated_warning_is_given_once() -> None:
    heard = Heard()
    once = WarnOnce(heard)
    for message in ("one", "two", "one"):
        once.warn(message)
    assert heard.warnings == ["one", "two"]
