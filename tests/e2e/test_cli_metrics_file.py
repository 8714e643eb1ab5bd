"""`--metrics-file`: the numbers of a command, for node_exporter."""

import os
import re
import stat
from pathlib import Path

import pytest

from tests.e2e.conftest import Cafcat


def values(file: Path) -> dict[str, float]:
    """Return the samples in a file, by name and labels."""
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


@pytest.fixture
def tree(cafcat: Cafcat) -> Cafcat:
    (cafcat.folder / "tree").mkdir()
    for name in ("a", "b"):
        (cafcat.folder / "tree" / name).write_bytes(b"content")
    os.symlink("a", cafcat.folder / "tree" / "link")
    return cafcat


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_an_ingest_writes_its_numbers(tree: Cafcat, jobs: str) -> None:
    file = tree.folder / "ingest.prom"
    tree("ingest", "tree", "-q", "--jobs", jobs, "--metrics-file", file)
    found = values(file)
    assert found['cafcat_job_exit_code{verb="ingest"}'] == 0
    assert found['cafcat_job_files{verb="ingest"}'] == 2
    assert found['cafcat_job_bytes{verb="ingest"}'] == 14
    assert found['cafcat_job_problems{verb="ingest",kind="symlink"}'] == 1
    [chunk] = tree("chunks", "ls", "--json").documents
    assert found['cafcat_job_written_bytes{verb="ingest"}'] == chunk["size_bytes"]
    assert found['cafcat_job_events{verb="ingest",event="chunk_committed",outcome=""}'] == 1
    assert found['cafcat_job_commit_seconds_count{verb="ingest"}'] == 1
    assert 0 < found['cafcat_job_longest_commit_seconds{verb="ingest"}'] < 100
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert [path.name for path in tree.folder.glob("*ingest.prom*")] == ["ingest.prom"]


def test_the_last_success_stays_after_a_failure(tree: Cafcat) -> None:
    file = tree.folder / "verify.prom"
    tree("ingest", "tree", "-q")
    tree("verify", "-q", "--metrics-file", file)
    success = 'cafcat_job_last_success_timestamp_seconds{verb="verify"}'
    before = values(file)
    [chunk] = (tree.folder / "store").glob("*.caf")
    chunk.write_bytes(chunk.read_bytes()[:-1])
    tree("verify", "-q", "--metrics-file", file, code=5)
    after = values(file)
    assert after[success] == before[success]
    assert after['cafcat_job_exit_code{verb="verify"}'] == 5
    assert after['cafcat_job_events{verb="verify",event="object_checked",outcome="damaged"}'] == 1


def test_a_command_that_never_succeeded_has_no_last_success(cafcat: Cafcat) -> None:
    file = cafcat.folder / "ingest.prom"
    cafcat("ingest", "none", "-q", "--metrics-file", file, code=4)
    assert values(file)['cafcat_job_exit_code{verb="ingest"}'] == 4
    assert "last_success" not in file.read_text()


def test_a_file_that_cannot_be_written_is_an_error(tree: Cafcat) -> None:
    result = tree("ingest", "tree", "-q", "--metrics-file", tree.folder / "none" / "x.prom", code=1)
    assert "cannot write the metrics" in result.err
    assert tree("ls", "-R").lines == ["tree/a", "tree/b"]


def test_the_doctor_writes_the_numbers_of_the_catalog(tree: Cafcat) -> None:
    tree("ingest", "tree", "-q")
    file = tree.folder / "doctor.prom"
    tree.unchecked("doctor", "--metrics-file", file)
    found = values(file)
    assert found["cafcat_files"] == 2
    assert found["cafcat_catalog_up"] == 1
    assert found['cafcat_chunks{state="committed"}'] == 1
    assert found['cafcat_doctor_results{check="schema",level="ok"}'] == 1
    assert found['cafcat_doctor_results{check="schema",level="error"}'] == 0


def test_failed_files_and_adoptions_are_no_success_of_an_ingest(tree: Cafcat) -> None:
    file, success = tree.folder / "doctor.prom", "cafcat_ingest_last_success_timestamp_seconds"
    tree("ingest", "tree", "-q")
    tree.unchecked("doctor", "--metrics-file", file)
    before = values(file)[success]
    (tree.folder / "tree" / b"bad\xff".decode(errors="surrogateescape")).write_bytes(b"content")
    tree("ingest", "tree", "-q", code=3)
    tree("export", "tree/a", "-o", "all.caf")
    tree("adopt", "all.caf", "--prefix", "new")
    tree.unchecked("doctor", "--metrics-file", file)
    assert values(file)[success] == before
    assert values(file)['cafcat_runs{state="finished"}'] == 3


@pytest.mark.parametrize(("option", "code", "pruned"), [("--quiet", 9, 0), ("--dry-run", 0, 0), ("--yes", 0, 1)])
def test_only_a_prune_that_removes_something_counts_it(tree: Cafcat, option: str, code: int, pruned: int) -> None:
    file = tree.folder / "prune.prom"
    tree("ingest", "tree", "-q")
    tree("rm", "-r", "tree", "--yes")
    tree("prune", "--grace", "0", option, "--metrics-file", file, code=code)
    found = values(file)
    assert found['cafcat_job_exit_code{verb="prune"}'] == code
    assert found['cafcat_job_files{verb="prune"}'] == 2 * pruned
    assert (found['cafcat_job_bytes{verb="prune"}'] > 0) == bool(pruned)
    assert found.get('cafcat_job_events{verb="prune",event="chunk_pruned",outcome=""}', 0) == pruned


def test_other_commands_have_no_such_option(cafcat: Cafcat) -> None:
    assert re.search("No such option.*--metrics-file", cafcat("ls", "--metrics-file", "x", code=2).err)
