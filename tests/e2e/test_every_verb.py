"""Every verb once, in its usual way, with the real command. `make test-fast` includes these tests."""

import json
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from cafcat.cli.app import app
from tests.e2e.conftest import Cafcat, Result
from tests.worlds.archives.log_archives import clp_program
from tests.worlds.servers.services import Databases
from tests.worlds.waiting import PATIENCE_SECONDS

__all__ = ["clp_program"]

FILES = {"tree/a": b"first\n", "tree/b": b"second\n" * 1000}
RECORD = {"level": "ERROR", "text": "disk full"}


class Case(NamedTuple):
    """A verb with usual arguments. Commands are the words after the name of the program."""

    command: str
    shows: str = ""
    """Text that the verb must print."""
    before: tuple[str, ...] = ()
    """Commands that run before it."""
    after: str = ""
    """A command whose output proves what the verb has done."""
    proof: str = ""
    """A part of that output."""


UNTIL_A_SIGNAL = ("mount", "serve")
"""Verbs that run until they get a signal: test_cli_mount.py and test_cli_serve.py test them."""
OF_RUNNING_INGESTS = ("runs pause", "runs resume")
"""Verbs for an ingest that runs: test_cli_limits.py tests them."""
CASES = {
    "ingest": Case("ingest tree --prefix new", "added 2 files", after="cat new/tree/a", proof="first"),
    "get": Case("get tree/a -o got", after="ingest got", proof="added 1 file"),
    "cat": Case("cat tree/a", "first"),
    "extract": Case("extract tree -C out", "extracted 2 files", after="ingest out", proof="added 2 files"),
    "ls": Case("ls -R", "tree/a\ntree/b\n"),
    "find": Case("find tree --name a*", "tree/a\n"),
    "stat": Case("stat tree/a", "size_bytes   6"),
    "locate": Case("locate tree/a", "start_byte  0"),
    "url": Case("url tree/a", "file:///"),
    "snapshot": Case("snapshot -o all.cafs", "snapshot of 2 files"),
    "export": Case("export -o all.caf", "exported 2 files", after="inspect all.caf", proof="tree/a"),
    "inspect": Case("inspect all.caf", "tree/a\ntree/b\n", before=("export -o all.caf",)),
    "convert": Case("convert all.caf all.car", "converted 2 files", before=("export -o all.caf",)),
    "adopt": Case(
        "adopt all.caf --prefix new",
        "adopted 1 archive: 2 files",
        before=("export -o all.caf",),
        after="cat new/tree/a",
        proof="first",
    ),
    "units": Case("units", "app.log", before=("ingest --format clp-s logs",)),
    "search": Case("search 'level: ERROR'", "disk full", before=("ingest --format clp-s logs",)),
    "runs": Case("runs", "finished"),
    "runs show": Case("runs show 1", "finished"),
    "runs watch": Case("runs watch 1", "finished"),
    "runs diff": Case("runs diff 1 1", ""),
    "du": Case("du", "tree/"),
    "query": Case("query files-of-run 1", "tree/a"),
    "db grant-reader": Case("db grant-reader cafcat_reader", "can read the catalog"),
    "stats": Case("stats", "files              2"),
    "rm": Case("rm tree/a --yes", "removed 1 file", after="ls -R", proof="tree/b"),
    "undelete": Case(
        "undelete tree/a", "brought back 1 file", before=("rm tree/a --yes",), after="cat tree/a", proof="first"
    ),
    "prune": Case("prune --grace 0 --yes", "removed 1 chunk", before=("rm -r tree --yes",)),
    "repack": Case(
        "repack --max-unused 0% --yes",
        "copied 1 live file",
        before=("rm tree/b --yes",),
        after="cat tree/a",
        proof="first",
    ),
    "verify": Case("verify --level data", "verified 1 object (data): 1 ok"),
    "repair": Case("repair --from-source tree --yes", "nothing"),
    "copy": Case("copy --all --to ./second", "copied 1 chunk"),
    "recover": Case("recover", "nothing to recover"),
    "rebuild": Case("rebuild", "rebuilt 1 chunk: 2 files", after="cat tree/a", proof="first"),
    "compare": Case("compare {url}", "no difference"),
    "backup": Case("backup", "backed up", after="backup --list", proof="backups/"),
    "restore": Case("restore", "restored", before=("backup",), after="cat tree/a", proof="first"),
    "sql": Case("sql -c 'SELECT count(*) FROM file_locations'", "2"),
    "keys add": Case("keys add", "secret_access_key", after="keys list", proof="active"),
    "keys list": Case("keys list", "(all files)", before=("keys add",)),
    "keys revoke": Case(
        "keys revoke {key} --yes", "revoked", before=("keys add",), after="keys list", proof="revoked"
    ),
    "limits set": Case("limits set s3://b --requests 3", "limited s3://b", after="limits list", proof="3 requests"),
    "limits list": Case("limits list", "1.0 MB/s", before=("limits set s3://b --bandwidth 1MB/s",)),
    "limits remove": Case("limits remove s3://b", "removed", before=("limits set s3://b --in-flight 1GB",)),
    "config": Case("config", "target_size = 30000000000"),
    "doctor": Case("doctor", "0 errors"),
    "completion": Case("completion bash", "_CAFCAT_COMPLETE"),
    "version": Case("version", "cafcat "),
    "help": Case("help runs show", "Usage: cafcat runs show"),
    "chunks ls": Case("chunks ls", "committed"),
    "chunks show": Case("chunks show {chunk}", "{chunk}"),
    "store ls": Case("store ls", "1 chunk"),
    "store add": Case("store add new ./new", "the store new is at file:///"),
    "store rename": Case(
        "store rename new newer", "the store newer is at file:///", before=("store add new ./new",)
    ),
    "store move": Case("store move store moved", "moved file:///"),
    "store migrate": Case("store migrate store ./new", "migrated 1 chunk"),
    "store rm": Case("store rm new", "removed file:///", before=("store add new ./new",)),
    "store check": Case("store check ./new", "writing             yes"),
    "db init": Case("db init", "the database is ready"),
    "db upgrade": Case("db upgrade", "already at revision"),
    "db current": Case("db current", "needed"),
    "db check": Case("db check", "nothing is wrong"),
    "db partition": Case("db partition 3 --yes", "has 3 partitions", after="cat tree/a", proof="first"),
    "db url": Case("db url", "postgresql://"),
    "db stop": Case("db stop --json", "stopped"),
    "db listen": Case("db listen --off", "no port was open"),
}
IN_AN_EMPTY_CATALOG = {"rebuild", "restore"}
"""Verbs, and commands after them, that run in an empty catalog with the same store."""
WITHOUT_A_DATABASE = {"convert", "config", "doctor", "completion", "version", "db stop", "db listen"}
"""Verbs that neither need a database nor start one."""


def all_verbs(command: Any, name: str = "") -> Iterator[str]:
    """Yield the full name of every verb. Groups of verbs are not verbs."""
    below = getattr(command, "commands", {})
    for word in below:
        yield from all_verbs(command.get_command(None, word), f"{name} {word}".strip())
    if not below or name == "runs":  # a group that is a verb, too
        yield name


def test_every_verb_has_a_case() -> None:
    assert sorted(all_verbs(typer.main.get_command(app))) == sorted([*CASES, *UNTIL_A_SIGNAL, *OF_RUNNING_INGESTS])


@pytest.fixture
def filled(cafcat: Cafcat, clp_program: Path) -> Cafcat:
    """The command with FILES in its catalog, and logs in a folder."""
    for path, content in {**FILES, "logs/app.log": json.dumps(RECORD).encode() + b"\n"}.items():
        (cafcat.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (cafcat.folder / path).write_bytes(content)
    cafcat("ingest", "tree", "-q")
    return cafcat


@pytest.mark.parametrize("verb", CASES)
def test_the_verb_does_its_work(filled: Cafcat, databases: Databases, verb: str) -> None:
    with databases.fresh(databases.template()) as empty:
        check_verb(filled, verb, empty)


def check_verb(filled: Cafcat, verb: str, empty: str) -> None:
    """Run the case of a verb, and check what it prints and what it has done.

    Args:
        filled: the command, with FILES in its catalog and logs in a folder.
        verb: the verb.
        empty: URL of an empty catalog.
    """
    case = CASES[verb]
    for command in case.before:
        filled(*shlex.split(command))
    shutil.copytree(filled.folder / "store", filled.folder / "moved")
    [chunk, *_] = filled("chunks", "ls", "--json").documents
    keys = filled("keys", "list", "--json").documents
    names = {"chunk": chunk["uuid"], "url": shlex.quote(str(filled.database_url))}
    names["key"] = keys[0]["access_key_id"] if keys else ""
    subject = in_its_catalog(filled, verb, empty)
    result = run(subject, case.command.format(**names))
    assert case.shows.format(**names) in result.text
    if case.after:
        assert case.proof in subject(*shlex.split(case.after)).text


def in_its_catalog(filled: Cafcat, verb: str, empty: str) -> Cafcat:
    """Return the command with the catalog that the verb is for."""
    if verb in WITHOUT_A_DATABASE:
        return Cafcat(filled.folder, None)
    return Cafcat(filled.folder, empty) if verb in IN_AN_EMPTY_CATALOG else filled


def run(cafcat: Cafcat, command: str) -> Result:
    """Run a command in a new interpreter, which must succeed and print no error."""
    process = subprocess.run(
        cafcat.command(*shlex.split(command)),
        cwd=cafcat.folder,
        env=cafcat.environment,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    result = Result(process.returncode, process.stdout, process.stderr.decode())
    assert result.code == 0, result
    assert all(line.startswith("cafcat: ") for line in result.err.splitlines()), result
    return result
