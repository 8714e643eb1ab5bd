"""The files of an extract: names after the removal of parts, filters, and pages."""

import errno
import os
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cafcat
from cafcat.catalog.files import lookup
from cafcat.errors import InvalidInput, NotFound
from cafcat.reading import tree_files
from cafcat.reading.output_names import OutputNames, stripped
from tests.worlds.catalog_world import commit

PARTS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4).map("/".join)
PREFIXES = st.lists(st.one_of(PARTS, st.sampled_from(["*", "a/*", "**/b", ""])), max_size=3)


def below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(names=st.sets(PARTS, min_size=1, max_size=12), prefixes=PREFIXES, strip=st.integers(0, 3))
def test_names_after_the_removal_of_parts(
    local: cafcat.Repository, tmp_path: Path, names: set[str], prefixes: list[str], strip: int
) -> None:
    """Two files of one name are refused. All others are written, except where a file is in the way of a folder."""
    with psycopg.connect(str(local.settings.database_url), autocommit=True) as connection:
        connection.execute("TRUNCATE file_locations")
    commit(local, dict.fromkeys(names, b"x"))
    out = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
    chosen = {path for prefix in prefixes or [""] for path in chosen_by(local, prefix)}
    outputs = Counter(filter(None, (stripped(path, strip) for path in chosen)))
    if not chosen and "" not in prefixes:
        with pytest.raises(NotFound):
            local.extract(prefixes, out, strip=strip)
        return
    if outputs and max(outputs.values()) > 1:
        with pytest.raises(InvalidInput, match="have the same name"):
            local.extract(prefixes, out, strip=strip)
        assert not out.exists()
        return
    report = local.extract(prefixes, out, strip=strip)
    in_the_way = sum(problem.kind != "missing" for problem in report.failed)
    assert report.files + in_the_way == len(outputs)
    assert below(out) <= set(outputs)
    assert len(below(out)) == report.files
    assert report.files_skipped == len(chosen) - len(outputs)


def chosen_by(repository: cafcat.Repository, prefix: str) -> set[str]:
    """Return the files that a prefix or pattern means, found by other methods than those of the extract."""
    paths = {location.path for location in repository.list(prefix)}
    if paths or "*" not in prefix:
        return paths
    return paths.union(*({one.path for one in repository.glob(f"{prefix}{rest}")} for rest in ("", "/**")))


def test_files_come_in_full_pages(
    local: cafcat.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many small prefixes share requests, because their files are read together."""
    monkeypatch.setattr(tree_files, "PLANNED_FILES", 7)
    monkeypatch.setattr(lookup, "PATHS", 5)
    names = [f"f{number:02}/x" for number in range(40)]
    commit(local, {name: name.encode() for name in names})
    assert local.plan_extract(["f*"]).requests == 6
    assert local.plan_extract(names[:14]).requests == 2
    assert local.extract(names, tmp_path / "out").files == 40
    assert local.extract("", tmp_path / "listed", paths=iter([*names, names[0]])).files == 40
    assert below(tmp_path / "listed") == set(names)
    with pytest.raises(InvalidInput, match="have the same name"):
        local.extract("f*", tmp_path / "none", strip=1)


def test_an_existing_file_that_cannot_be_read_is_a_failed_one(
    local: cafcat.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(local, {"a": b"a", "b": b"b"})
    local.extract("a", tmp_path / "out")
    open_file = os.open

    def denied(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if path == "a" and not flags & os.O_DIRECTORY:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return open_file(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", denied)  # root may read every file
    report = local.extract("", tmp_path / "out")
    assert (report.files, report.files_there, [one.path for one in report.failed]) == (1, 0, ["a"])


def test_an_empty_catalog_has_all_files(local: cafcat.Repository, tmp_path: Path) -> None:
    assert local.extract("", tmp_path / "out").files == 0
    assert local.extract([".", "none"], tmp_path / "out").files_failed == 1
    with pytest.raises(InvalidInput, match="at least 0"):
        local.extract("", tmp_path / "out", strip=-1)
    with pytest.raises(InvalidInput, match="bad pattern"):
        local.extract("", tmp_path / "out", include=["!"])
    with pytest.raises(InvalidInput, match="NUL"):
        local.extract("a\0", tmp_path / "out")


def test_two_paths_of_one_output_are_found() -> None:
    with OutputNames("one name", "a hint") as names:
        for number in reversed(range(100)):
            assert names.add(f"a/{number:02}", f"{number:02}")
        names.check()
        assert not names.add("a\0", "a")
        assert list(names) == [f"a/{number:02}" for number in range(100)]
        names.add("b/50", "50")
        with pytest.raises(InvalidInput, match="'a/50' and 'b/50' have one name"):
            names.check()
