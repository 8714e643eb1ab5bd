"""Versions of files are read as the catalog had them at an earlier time, until their chunks are pruned."""

import contextlib
import io
import itertools
import tarfile
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cafcat
from cafcat.catalog.files.lookup import PAGE_ROWS
from cafcat.errors import CafcatError, InvalidInput, NotFound
from cafcat.reading.archive_stream import ERRORS_MEMBER
from tests.worlds.catalog_world import commit, sql
from tests.worlds.rebuild_world import World, local, world

__all__ = ["local", "world"]

PATHS = ("d/a", "d/b", "e/a", "top")
Steps = list[tuple[str, tuple[str, ...]]]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("commit", "rm", "undelete", "repack")),
        st.sets(st.sampled_from(PATHS), min_size=1).map(tuple),
    ),
    min_size=1,
    max_size=8,
)


def now(repository: cafcat.Repository) -> datetime:
    [(moment,)] = sql(repository, "SELECT clock_timestamp()")
    assert isinstance(moment, datetime)
    return moment


def live(repository: cafcat.Repository) -> dict[str, bytes]:
    return {location.path: repository.read(location.path) for location in repository.list()}


def history(repository: cafcat.Repository, steps: Steps) -> list[tuple[datetime, dict[str, bytes]]]:
    """Change the catalog step by step. Return a time after each step, with the files that the catalog had then."""
    states = [(now(repository), live(repository))]
    for number, (kind, paths) in enumerate(steps):
        if kind == "commit":
            commit(repository, {path: f"{number} {path}".encode() for path in paths})
        elif kind == "rm":
            repository.rm(paths)
        elif kind == "undelete":
            repository.undelete(paths)
        else:
            repository.repack(max_unused=0)
        states.append((now(repository), live(repository)))
    return states


def extracted(read: Callable[[Path], object], folder: Path) -> dict[str, bytes]:
    """Return the files that a call writes below a folder."""
    read(folder)
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def check(repository: cafcat.Repository, moment: datetime, files: dict[str, bytes], folder: Path) -> None:
    """Check that all ways to read return the files of a time, and no others."""
    then = repository.as_of(moment)
    contents = {path: content for path, content in then.read_many(PATHS) if isinstance(content, bytes)}
    assert contents == files
    assert extracted(lambda to: then.extract("", to), folder) == files
    assert set(then.expand(["**"])) == (set(files) or {"**"})
    check_many(repository, moment, files, folder)
    for path in PATHS:
        if path in files:
            assert b"".join(then.stream(path)) == then.read(path) == then.open(path).read() == files[path]
        else:
            with pytest.raises(NotFound, match="no version of the file from 20"):
                then.locate(path)


def check_many(repository: cafcat.Repository, moment: datetime, files: dict[str, bytes], folder: Path) -> None:
    """Check that the ways to read or find several files return those of a time."""
    then = repository.as_of(moment)
    given_order = list(then.read_many(PATHS, order="given"))
    assert [path for path, _ in given_order] == list(PATHS)
    assert {path: content for path, content in given_order if isinstance(content, bytes)} == files
    located = then.locate_many(PATHS)
    assert {path for path, found in located.items() if not isinstance(found, CafcatError)} == set(files)
    assert all(
        "no version of the file from 20" in str(found) for path, found in located.items() if path not in files
    )
    assert list(then.glob("**")) == list(then.list()) == [located[path] for path in sorted(files)]
    assert [path for page in then.find_paths(name="a") for path in page] == [
        path for path in sorted(files) if path.endswith("/a")
    ]
    below = {f"{path.split('/')[0]}/" if "/" in path else path for path in files}
    assert [entry.path for entry in then.list_folder()] == sorted(below)
    assert {path for path in (*PATHS, "d", "d/") if path in then} == set(files)
    outputs = {path: folder / f"got-{path.replace('/', '-')}" for path in PATHS}
    assert len(list(then.get_many(outputs))) == len(PATHS)
    assert {path: file.read_bytes() for path, file in outputs.items() if file.exists()} == files
    assert members(then.stream_archive(PATHS, on_error="skip")) == files


def members(archive: Iterable[bytes]) -> dict[str, bytes]:
    """Return the files in a tar, without the list of errors."""
    with tarfile.open(fileobj=io.BytesIO(b"".join(archive))) as tar:
        found = {one.name: tar.extractfile(one) for one in tar if one.name != ERRORS_MEMBER}
        return {name: file.read() for name, file in found.items() if file is not None}


@given(STEPS)
@settings(max_examples=12, suppress_health_check=list(HealthCheck))
def test_every_earlier_state_is_read_back(
    world: World, tmp_path_factory: pytest.TempPathFactory, steps: Steps
) -> None:
    repository = world.empty()
    for moment, files in history(repository, steps):
        check(repository, moment, files, tmp_path_factory.mktemp("then"))


def test_all_kinds_of_changes(local: World, tmp_path: Path) -> None:
    steps: Steps = [
        ("commit", ("d/a", "d/b", "top")),
        ("commit", ("d/a",)),
        ("rm", ("d/b",)),
        ("repack", ("d/a",)),
        ("undelete", ("d/b",)),
        ("rm", ("d/b",)),
        ("commit", ("d/b", "e/a")),
    ]
    states = history(local.repository, steps)
    assert len({tuple(sorted(files.items())) for _, files in states}) == 5
    for number, (moment, files) in enumerate(states):
        check(local.repository, moment, files, tmp_path / str(number))


def test_a_version_is_gone_once_its_chunk_is_pruned(local: World) -> None:
    commit(local.repository, {"a": b"1"})
    moment = now(local.repository)
    commit(local.repository, {"a": b"2"})
    assert local.repository.as_of(moment).read("a") == b"1"
    local.repository.prune(grace_seconds=0)
    with pytest.raises(NotFound, match="or has pruned the version"):
        local.repository.as_of(moment).read("a")
    assert local.repository.read("a") == b"2"


def test_an_extract_reports_the_files_whose_version_was_pruned(local: World, tmp_path: Path) -> None:
    repository = local.repository
    commit(repository, {"f/a": b"1", "f/b": b"1", "f/removed": b"1", "g/a": b"1"})
    commit(repository, {"f/kept": b"1"})
    moment = now(repository)
    commit(repository, {"f/a": b"2", "f/b": b"2", "g/a": b"2"})
    repository.rm(["f/removed"])
    repository.prune(grace_seconds=0)
    then = repository.as_of(moment)
    report = then.extract("f", tmp_path / "one", exclude=["b"])
    assert (report.files, report.files_failed) == (1, 2)
    assert {(problem.path, problem.kind.value) for problem in report.failed} == {
        ("f/a", "missing"),
        ("f/removed", "missing"),
    }
    assert [path for path, _ in then.plan_extract("").failed] == ["f/a", "f/b", "f/removed", "g/a"]
    assert repository.as_of(now(repository)).extract("", tmp_path / "now").files_failed == 0
    with pytest.raises(NotFound, match="or its versions are gone"):
        then.extract("g", tmp_path / "two")


def test_prefixes_and_lists(local: World, tmp_path: Path) -> None:
    commit(local.repository, {path: path.encode() for path in PATHS})
    then = local.repository.as_of(now(local.repository))
    local.repository.rm(PATHS)
    names = itertools.count()

    def paths(prefix: str | list[str], **options: object) -> set[str]:
        return set(extracted(lambda to: then.extract(prefix, to, **options), tmp_path / str(next(names))))  # type: ignore[arg-type]

    assert paths("d") == {"d/a", "d/b"}
    assert paths(["e/", "top"]) == {"e/a", "top"}
    assert paths("*/a") == {"d/a", "e/a"}
    assert paths("d", include=["*a"], strip=1) == {"a"}
    assert paths("", paths=["top", "d/b", "none"]) == {"top", "d/b"}
    with pytest.raises(NotFound, match="no file or folder of this name from 20"):
        then.extract("none", tmp_path / "none")
    [(name, error)] = [
        found for found in then.get_into(["d/a", "none"], tmp_path) if isinstance(found[1], CafcatError)
    ]
    assert (name, error.kind) == ("none", "not_found")
    assert (tmp_path / "a").read_bytes() == b"d/a"


def test_invalid_arguments_are_refused(local: World, tmp_path: Path) -> None:
    commit(local.repository, {"a": b"1"})
    then = local.repository.as_of("0s")
    with pytest.raises(InvalidInput, match="strip must be at least 0, not -1"):
        then.extract("", tmp_path / "out", strip=-1)
    with pytest.raises(InvalidInput, match="order must be archive or given"):
        then.read_many(["a"], order="other")  # type: ignore[arg-type]


def test_a_listing_meets_the_conditions_of_find(local: World) -> None:
    commit(local.repository, {f"d/{number}": bytes(number) for number in range(5)})
    then = local.repository.as_of(now(local.repository))
    times = {location.modified_ns for location in local.repository.list()} - {None}
    for conditions in (
        {"min_size": 2},
        {"max_size": 2},
        {"min_size": 2, "max_size": 3},
        *({key: time + shift} for key in ("newer_ns", "older_ns") for time in times for shift in (-1000, 0, 1000)),
        {"name": "[2-4]", "newer_ns": 0, "older_ns": max(times, default=0) + 1},
    ):
        assert list(then.find(**conditions)) == list(local.repository.find(**conditions)), conditions


def test_patterns_over_several_pages_of_paths(local: World) -> None:
    paths = [f"d/{number:04}.{number % 2}" for number in range(2 * PAGE_ROWS + 500)]
    commit(local.repository, dict.fromkeys(paths, b"1"))
    moment = now(local.repository)
    local.repository.rm(paths[: PAGE_ROWS + 500])  # the first page has no file of now
    commit(local.repository, dict.fromkeys((f"c/{number}" for number in range(PAGE_ROWS)), b"2"))
    then = local.repository.as_of(moment)
    assert [location.path for location in then.glob("d/*.1")] == paths[1::2]
    assert [location.path for location in then.glob("**")] == paths
    assert [entry.path for entry in then.list_folder()] == ["d/"]
    assert [entry.path for entry in then.list_folder("d")] == paths
    assert [entry.path for entry in local.repository.as_of("0s").list_folder()] == ["c/", "d/"]
    located = then.locate_many(paths)
    assert [*located] == paths
    assert not any(isinstance(found, CafcatError) for found in located.values())


def test_a_rebuild_from_all_records_leaves_no_version_uncertain(
    local: World, caplog: pytest.LogCaptureFixture
) -> None:
    commit(local.repository, {"b": b"pruned"})
    local.repository.rm(["b"])
    local.repository.prune(grace_seconds=0)
    moments = []
    for content in (b"1", b"22", b"333"):
        commit(local.repository, {"a": content})
        moments.append(now(local.repository))
    rebuilt, _ = local.rebuilt()
    assert [rebuilt.as_of(moment).read("a") for moment in moments] == [b"1", b"22", b"333"]
    assert caplog.messages == []
    query = "SELECT run_id FROM retired_locations WHERE file_path = 'a' ORDER BY retired_at"
    assert sql(rebuilt, query) == sql(local.repository, query) != [(None,), (None,)]


def test_versions_that_only_a_rebuild_knows_are_uncertain(local: World, caplog: pytest.LogCaptureFixture) -> None:
    commit(local.repository, {"a": b"1", "keep": b""})
    commit(local.repository, {"a": b"22"})
    moment = now(local.repository)
    commit(local.repository, {"a": b"333"})
    local.repository.prune(grace_seconds=0)
    rebuilt, _ = local.rebuilt()
    assert rebuilt.as_of("0s").read("a") == b"333"
    assert caplog.messages == []
    assert rebuilt.as_of(moment).read("a") == b"1"  # the version of that time was pruned
    [warning] = caplog.messages
    assert "may be an earlier version than that of the time" in warning
    later = now(rebuilt)
    commit(rebuilt, {"a": b"4444"})
    caplog.clear()
    assert rebuilt.as_of(later).read("a") == b"333"
    assert caplog.messages == []


def test_times(local: World) -> None:
    commit(local.repository, {"a": b"1"})
    later = datetime(2100, 1, 1, tzinfo=UTC)
    for moment in (later, "2100-01-01", "0s"):
        assert local.repository.as_of(moment).read("a") == b"1"
    with pytest.raises(NotFound):
        local.repository.as_of("1d").read("a")
    for extreme in (datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC), "9999-12-31T23:59:59"):
        with contextlib.suppress(NotFound):
            assert local.repository.as_of(extreme).read("a") == b"1"
    for wrong in (datetime(2100, 1, 1), "yesterday", "740000d", "9999-12-31T23:59:59-10:00", 5):  # noqa: DTZ001
        with pytest.raises(InvalidInput):
            local.repository.as_of(wrong)  # type: ignore[arg-type]
