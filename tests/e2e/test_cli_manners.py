"""Options, settings, secrets, errors in one line, pipes, interrupts, completion."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from cafcat import __version__
from cafcat.cli.app import OF_OTHER_PROGRAMS
from cafcat.native.library import why_unused
from tests.docs.test_cli_documented import VERBS
from tests.e2e.conftest import SECRET, TREE, Cafcat
from tests.worlds.waiting import PATIENCE_SECONDS, wait_until


@pytest.fixture
def alone(tmp_path: Path) -> Cafcat:
    """The command without a database URL: verbs that need a database would start the embedded one."""
    return Cafcat(tmp_path, None)


def test_version_and_help(alone: Cafcat) -> None:
    assert alone("--version").text == alone("version").text == f"cafcat {__version__}\n"
    document = alone("version", "--json").document
    assert document == {"version": __version__, "native": why_unused() is None, "native_reason": why_unused()}
    off = Cafcat(alone.folder, alone.database_url, {"CAFCAT_NATIVE": "0"})
    assert off("version", "-v").lines == [f"cafcat {__version__}", "native part: not used (CAFCAT_NATIVE=0)"]
    assert off("config").lines[-1] == "native = not used  (CAFCAT_NATIVE=0)"
    assert "ingest" in alone("--help").text
    assert "--range" in alone("get", "--help").text
    process = subprocess.run(alone.command("db"), capture_output=True, check=False)
    assert process.returncode == 2
    assert b"Usage: cafcat db" in process.stderr
    for arguments in (("--json", "db"), ("db", "--json")):
        error = alone(*arguments, code=2).error
        assert (error["message"], error["hint"]) == ("`cafcat db` needs a command", "see cafcat db --help")


def test_help_of_a_command(alone: Cafcat) -> None:
    assert alone().text == alone("help").text
    for words in ([], ["db"], ["db", "init"], ["runs", "show"], ["get"]):
        assert alone("help", *words).text == alone(*words, "--help").text == alone(*words, "-h").text
    assert alone("help", "db", "init", "--json").document["help"].startswith("Usage: cafcat db init")
    assert alone("ls", "--help").text == alone("help", "ls").text
    assert "-h, --human" in alone("help", "ls").text
    for words in (["nothing"], ["db", "nothing"], ["get", "nothing"]):
        assert f"no command `{' '.join(words)}`" in alone("help", *words, code=2).err
    for words, near in ((["ingset"], "ingest"), (["db", "upgrad"], "db upgrade")):
        assert f"did you mean `cafcat help {near}`?" in alone("help", *words, code=2).err
    for words, group in ((["store", "list"], "store ls"), (["keys", "ls"], "keys list")):
        assert alone("help", *words).text.startswith(f"Usage: cafcat {group} ")
    assert "`cafcat runs` shows the list" in alone("help", "runs", "list", code=2).err


def test_the_help_lists_each_command_with_its_whole_first_sentence(alone: Cafcat) -> None:
    text = alone("--help").text
    assert "..." not in text.split("Packing:")[1]
    for panel in ("Packing", "Reading", "Archives", "Custody", "Catalog", "Setup"):
        assert f"\n{panel}:\n" in text
    assert "and the layout of the table of files." in " ".join(alone("db", "-h").text.split())


def test_wrong_arguments_are_one_line_and_2(alone: Cafcat) -> None:
    for arguments in (["get"], ["ls", "a", "b"], ["db", "nonsense"]):
        assert alone(*arguments, code=2).err.count("\n") == 1
    error = alone("ls", "--nonsense", "--json", code=2).error
    assert set(error) == {"kind", "message", "path", "chunk", "byte", "hint"}
    assert error["kind"] == "invalid_input"
    assert "--nonsense" in error["message"]


@pytest.mark.parametrize("word", [*OF_OTHER_PROGRAMS])
def test_a_verb_of_other_programs_is_explained(alone: Cafcat, word: str) -> None:
    error = alone(word, "--json", code=2).error
    assert error["message"] == f"cafcat has no command {word!r}"
    named = re.findall(r"`cafcat ([a-z]+)", error["hint"])
    assert named
    for verb in named:
        assert any(f"{name} ".startswith(f"cafcat {verb} ") for name in VERBS), verb


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["backup", "photos"], "(photos)", "`cafcat ingest FOLDER` packs a folder"),
        (["ingest", "photos", "-n"], "-n", "--dry-run lists the changes, and writes nothing"),
        (["ingest", "photos", "--exclude-file", "list"], "--exclude-file", "repeat --exclude PATTERN"),
        (["rm", "-rf", "photos"], "-f", "--yes removes folders without a question"),
        (["get", "-dash.txt"], "-d", "write -- before names that begin with a dash"),
        (["config", "get", "store"], "(get store)", "change them in the file that its first line names"),
        (["db", "migrate"], "'migrate'", "`cafcat db upgrade` brings the database"),
        (["runs", "2"], "'2'", "`cafcat runs show 2` shows number 2"),
        (["restore", "--list"], "--list", "`cafcat backup --list` lists the backups"),
        (["ingest", "photos", "--prefix", "../x"], "'..'", "write it as photos/2026"),
        (["serve", "s3"], "(s3)", "--s3-port N for the S3 protocol"),
        (["find", "-name", "*.log"], "-n", "options have two dashes: `cafcat find FOLDER --name PATTERN`"),
        (["restore", "latest", "--target", "/tmp"], "--target", "`cafcat extract [PREFIX...] -C DIR` copies files"),
        (["sql", "SELECT 1"], "(SELECT 1)", "`cafcat sql -c QUERY`"),
        (["extract", "photos", "--target", "out"], "--target", "-C DIR names the folder on disk"),
        (["cat", "photos/a", "--snapshot", "4"], "--snapshot", "use --as-of TIME; `cafcat query history PATH`"),
        (["prune", "--max-unused", "5%"], "--max-unused", "`cafcat repack --max-unused SHARE`"),
        (["rm", "--keep-daily", "7", "photos"], "--keep-daily", "replaced versions stay until `cafcat prune`"),
        (["ingest", "--stdin"], "--stdin", "tar -c FOLDER | cafcat ingest -"),
        (["copy", "--bwlimit", "1M"], "--bwlimit", "--bandwidth RATE"),
        (["copy", "photos", "remote:x"], "Missing option '--to'", "--to STORE is the folder or URL for the copies"),
    ],
)
def test_the_usage_of_other_programs_is_explained(
    alone: Cafcat, arguments: list[str], message: str, hint: str
) -> None:
    error = alone(*arguments, "--json", code=2).error
    assert error["message"].endswith(message)
    assert hint in error["hint"]


def test_only_options_that_look_alike_are_guessed(alone: Cafcat) -> None:
    assert "Possible options: --store" in alone("ls", "--sotre", "x", code=2).err
    assert "Possible options" not in alone("ls", "--start", "x", code=2).err


def test_ls_and_list_of_a_group_mean_the_same(cafcat: Cafcat) -> None:
    cafcat("ingest", str(Path(__file__).parent / "conftest.py"), "-q")
    assert cafcat("store", "list").text == cafcat("store", "ls").text != ""
    assert cafcat("keys", "ls").text == cafcat("keys", "list").text
    cafcat("limits", "set", "s3://b", "--requests", "3")
    for group, listing in (("store", "ls"), ("chunks", "ls"), ("keys", "list"), ("limits", "list")):
        assert cafcat(group).text == cafcat(group, listing).text
        assert cafcat(group, "--json").out == cafcat(group, listing, "--json").out
    assert cafcat("chunks").lines
    error = cafcat("runs", "ls", "--json", code=2).error
    assert (error["message"], error["hint"]) == (
        "`cafcat runs` has no command 'ls'",
        "`cafcat runs` shows the list",
    )
    assert "No such command 'ls'" in cafcat("db", "ls", code=2).err


def test_a_missing_file_has_a_hint(cafcat: Cafcat) -> None:
    cafcat("ingest", str(Path(__file__).parent / "conftest.py"), "-q")
    hint = (
        "`cafcat find --name 'a b.txt'` looks for a file of this name in all folders, and `cafcat ls` lists folders"
    )
    assert cafcat("get", "/home/x/a b.txt", "--json", code=4).error["hint"] == hint
    hint = "the pattern '**/a b' means this name in any folder, and `cafcat ls` lists folders"
    assert cafcat("extract", "a b", "-C", "out", "--json", code=4).error["hint"] == hint


def test_the_path_of_a_packed_file_on_a_disk_leads_to_its_name(filled: Cafcat) -> None:
    folder = filled.folder / "tree"
    why = "names begin with the packed folder, not with the folders above it"
    for verb in ("get", "cat", "stat", "ls", "find", "du"):
        hint = f"the catalog has 'tree/big.dat': {why}"
        assert filled(verb, str(folder / "big.dat"), "--json", code=4).error["hint"] == hint
    for verb in ("ls", "find", "du"):
        assert filled(verb, f"{folder}/", "--json", code=4).error["hint"] == f"the catalog has 'tree': {why}"
    assert f"the catalog has 'tree': {why}" in filled("extract", str(folder), "-C", "out", code=4).err
    for verb in ("get", "ls"):
        assert why not in filled(verb, str(folder / "nothing"), code=4).err


def test_config_shows_where_each_value_comes_from(alone: Cafcat) -> None:
    (alone.folder / "home").mkdir()
    config = alone.folder / "home" / "cafcat.toml"
    config.write_text('target_size = "1MB"\n[profiles.p]\ntarget_size = "2MB"\n')
    document = alone("config", "--json", "--store", "elsewhere").document
    assert document["target_size"] == {"value": 1_000_000, "origin": f"file {config}: target_size"}
    assert document["store"] == {"value": str(alone.folder / "elsewhere"), "origin": "flag"}
    assert document["home"] == {"value": str(alone.folder / "home"), "origin": "environment CAFCAT_HOME"}
    assert alone("config").lines[0] == f"config = {config}  (read)"
    config_of_other_home = alone("config", "--home", "other").lines[0]
    assert config_of_other_home == f"config = {alone.folder / 'other' / 'cafcat.toml'}  (does not exist)"
    assert document["database_url"] == {"value": None, "origin": "default"}
    assert alone("--profile", "p", "config", "--json").document["target_size"]["value"] == 2_000_000
    assert "target_size = 1000000" in alone("config").text
    assert "lock_timeout = none: ten minutes; 0 for rebuild and restore  (default)" in alone("config").text
    assert "tracing = false  (default)" in alone("config").text
    assert "no profile 'q'" in alone("config", "--profile", "q", code=2).err
    alone("config", "--config", "none.toml", code=2)


def test_config_shows_named_stores_and_no_secret(alone: Cafcat) -> None:
    (alone.folder / "home").mkdir()
    config = alone.folder / "home" / "cafcat.toml"
    config.write_text(
        '[stores.archive]\nurl = "s3://bucket/prefix"\nregion = "eu-central-1"\naddressing = "path"\n'
        'endpoint_url = "http://127.0.0.1:9"\nprofile = "mine"\n[stores.old]\nurl = "/srv/chunks"\n'
    )
    secrets = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"), SECRET)
    cafcat = Cafcat(alone.folder, None, {**secrets, "CAFCAT_STORE": "archive", "CAFCAT_UPLOAD_MEMORY": "20MB"})
    document = cafcat("config", "--json").document
    assert document["store"] == {"value": "s3://bucket/prefix", "origin": "environment CAFCAT_STORE"}
    assert document["upload_memory"] == {"value": 20_000_000, "origin": "environment CAFCAT_UPLOAD_MEMORY"}
    assert document["stores"] == {
        "archive": {
            "url": "s3://bucket/prefix",
            "endpoint_url": "http://127.0.0.1:9",
            "region": "eu-central-1",
            "profile": "mine",
            "addressing": "path",
            "origin": f"file {config}: stores.archive",
        },
        "old": {"url": "/srv/chunks", "origin": f"file {config}: stores.old"},
    }
    lines = cafcat("config").lines
    assert (
        "stores.archive = s3://bucket/prefix, endpoint_url http://127.0.0.1:9, region eu-central-1, profile mine,"
        f" addressing path  (file {config}: stores.archive)" in lines
    )
    assert f"stores.old = /srv/chunks  (file {config}: stores.old)" in lines
    for arguments in (["--json"], [], ["--debug", "-v"], ["--store", f"s3://key:{SECRET}@bucket", "--debug"]):
        result = cafcat.unchecked("config", *arguments)
        assert result.code == (2 if "--store" in arguments else 0)
        assert SECRET not in result.text + result.err


def test_shared_options_may_stand_anywhere_and_the_last_wins(filled: Cafcat) -> None:
    expected = filled("chunks", "ls", "--json").documents
    assert filled("chunks", "--json", "ls").documents == filled("--json", "chunks", "ls").documents == expected
    nowhere = "postgresql:///none?host=/nowhere"
    assert filled.database_url
    filled("--database-url", nowhere, "stats", "--database-url", filled.database_url)
    filled("--database-url", filled.database_url, "stats", "--database-url", nowhere, code=10)


URLS = {
    "url": f"postgresql://user:{SECRET}@127.0.0.1:1/none",
    "sqlalchemy": f"postgresql+psycopg://user:{SECRET}@127.0.0.1:1/none",
    "query": f"postgresql://127.0.0.1:1/none?password={SECRET}",
    "keywords": f"host=127.0.0.1 port=1 password='{SECRET}'",
    "broken port": f"postgresql://user:{SECRET}@127.0.0.1:x/none",
    "broken keyword": f"password={SECRET} nonsense=1",
    "unescaped": f"postgresql://user:/{SECRET}@127.0.0.1:1/none",
    "two ats": f"postgresql://user:p@{SECRET}@127.0.0.1:1/none",
    "slash": f"postgresql://user:{SECRET}/more@127.0.0.1:1/none",
    "slash behind digits": f"postgresql://user:12/{SECRET}@127.0.0.1:1/none",
    "question mark": f"postgresql://user:{SECRET}?more@127.0.0.1:1/none",
    "question mark before": f"postgresql://user:more?{SECRET}@127.0.0.1:1/none",
    "question mark, digits": f"postgresql://user:1?{SECRET}=@127.0.0.1:1/none",
    "percent": f"postgresql://user:{SECRET}%zz@127.0.0.1:1/none",
    "percent zero": f"postgresql://user:{SECRET}%00@127.0.0.1:1/none",
    "bracket": f"postgresql://user:x@[{SECRET}/none",
    "space in a keyword": f"host=127.0.0.1 password=more {SECRET}",
    "quote in a keyword": f"host=127.0.0.1 password='{SECRET}",
    "not UTF-8": f"postgresql://user:{SECRET}\udce9@127.0.0.1:x/none",
}


@pytest.mark.parametrize("name", URLS)
def test_a_password_is_never_shown(tmp_path: Path, name: str) -> None:
    cafcat = Cafcat(tmp_path, URLS[name])
    (tmp_path / "f").write_bytes(b"f")
    verbs = [["config", "--json"], ["ingest", "f", "--debug"], ["db", "current", "--debug"]]
    for verb in verbs:
        result = cafcat.unchecked(*verb)
        assert result.code in (0, 2, 10), (verb, result)
        assert SECRET not in result.text + result.err, verb


def test_the_password_of_a_database_that_answers_is_shown_by_db_url_only(filled: Cafcat) -> None:
    assert filled.database_url
    url = f"{filled.database_url}&password={quote(SECRET)}"
    cafcat = Cafcat(filled.folder, url)
    assert SECRET in cafcat("db", "url").text
    for verb in (["config"], ["stats", "-v"]):
        result = cafcat(*verb)
        assert SECRET not in result.text + result.err


def test_a_traceback_only_with_debug(alone: Cafcat) -> None:
    process = subprocess.run(
        alone.command("inspect", "none", "--debug"), cwd=alone.folder, capture_output=True, check=False
    )
    assert process.returncode == 4
    assert process.stderr.startswith(b"Traceback")
    assert process.stderr.splitlines()[-1].startswith(b"cafcat: ")


@pytest.mark.parametrize("arguments", [["cat", "tree/big.dat"], ["sql", "-c", "SELECT generate_series(1, 100000)"]])
def test_a_reader_that_goes_away_is_no_error(filled: Cafcat, arguments: list[str]) -> None:
    process = filled.popen(*arguments)
    assert process.stdout
    assert process.stdout.read(10)
    process.stdout.close()
    assert process.wait(timeout=PATIENCE_SECONDS) == 141
    assert process.stderr
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.stdin
    process.stdin.close()


def test_output_that_cannot_be_written_is_an_error(filled: Cafcat) -> None:
    with Path("/dev/full").open("wb") as full:
        for verb in (["ls"], ["cat", "tree/big.dat"]):
            process = subprocess.run(
                filled.command(*verb), env=filled.environment, stdout=full, stderr=subprocess.PIPE, check=False
            )
            assert process.returncode == 1
            assert process.stderr == b"cafcat: standard output cannot be written: No space left on device\n"
        process = subprocess.run(
            filled.command("ls", "--json"), env=filled.environment, stdout=full, stderr=subprocess.PIPE, check=False
        )
        assert json.loads(process.stderr)["error"]["kind"] == "output_failed"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["verify", "--sample", "5"], "--sample: not a share above 0%, up to 100%: '5'; write 20% or 0.5%"),
        (["find", ".", "--newer", "yesterday"], "--newer: not a date: 'yesterday'; write 2026-"),
        (["find", ".", "--min-size", "2MB", "--max-size", "1MB"], "no file meets both --min-size and --max-size"),
        (["find", ".", "--newer", "7d", "--older", "30d"], "no file meets both --newer and --older"),
        (["find", "tree", "a.jpg"], "a quoted pattern chooses files in it: `cafcat find FOLDER --name '*.jpg'`"),
        (["ls", "tree", "other"], "ls lists one folder"),
    ],
)
def test_wrong_values_and_the_next_step(filled: Cafcat, arguments: list[str], expected: str) -> None:
    assert expected in filled(*arguments, code=2).err


def test_messages_that_cannot_be_written_leave_the_exit_code(filled: Cafcat) -> None:
    with Path("/dev/full").open("wb") as full:
        process = subprocess.run(filled.command("ls", "none"), env=filled.environment, stderr=full, check=False)
    assert process.returncode == 4


def test_ctrl_c_in_other_verbs(filled: Cafcat) -> None:
    process = filled.popen("sql", "-c", "SELECT pg_sleep(60)")
    assert filled.database_url
    # By the wait event, because the text of the running query is that of a FETCH.
    asks = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"
    with psycopg.connect(filled.database_url, autocommit=True) as connection:
        wait_until(lambda: connection.execute(asks).fetchone())
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, out, err) == (130, b"", b"cafcat: interrupted\n")


_INTERRUPTED_IMPORT = """
import sys
class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.argv = ["cafcat", "query", "stores", "--json"]
sys.meta_path.insert(0, Interrupting())
from cafcat.__main__ import main
main()
"""


@pytest.mark.parametrize("module", ["cafcat.cli.app", "typer.main", "cafcat.cli.catalog.query"])
def test_ctrl_c_during_the_start_is_answered_as_json(module: str) -> None:
    program = _INTERRUPTED_IMPORT.format(module=module)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stdout, json.loads(done.stderr)) == (130, b"", {"notice": "interrupted"})


def on_a_terminal(cafcat: Cafcat, *arguments: str | Path) -> tuple[bytes, int]:
    """Return output and exit code of a command whose stdout and stderr are a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        cafcat.command(*arguments), cwd=cafcat.folder, env=cafcat.environment, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        seen = b""
        try:
            while block := os.read(ours, 1 << 16):
                seen += block
        except OSError:
            pass  # Linux raises this when the other end is closed
    os.close(ours)
    return seen, process.returncode


def test_on_a_terminal_names_cannot_move_the_cursor(filled: Cafcat) -> None:
    seen, code = on_a_terminal(filled, "ls", "-R")
    assert code == 0
    assert rb"tree/odd/\x1b[31mred" in seen
    assert rb"tree/odd/new\nline" in seen
    assert "tree/odd/日本 é".encode() in seen
    assert b"\x1b" not in seen


def test_a_bar_on_a_terminal(filled: Cafcat, tmp_path: Path) -> None:
    seen, code = on_a_terminal(filled, "extract", "-C", tmp_path)
    assert code == 0
    assert b"extract: " in seen
    assert f"extracted {len(TREE)} files".encode() in seen
    seen, _ = on_a_terminal(filled, "extract", "-C", tmp_path / "quiet", "-q")
    assert seen == b""


def test_the_locale_does_not_matter(filled: Cafcat) -> None:
    latin = Cafcat(filled.folder, filled.database_url, {"LC_ALL": "C", "PYTHONIOENCODING": "latin-1"})
    assert "tree/odd/日本 é\n".encode() in latin("ls", "-R").out
    assert latin("cat", "tree/odd/日本 é").out == b"unicode"
    assert latin("cat", os.fsdecode(b"\xff"), "--json", code=2).error["kind"] == "invalid_input"


def test_names_are_utf8_in_other_locales(filled: Cafcat) -> None:
    """Python would decode names by the locale's encoding, so that other names would enter the catalog."""
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    other = Cafcat(filled.folder, filled.database_url, ascii_only)
    assert other("cat", "tree/odd/日本 é").out == b"unicode"
    other("ingest", "tree", "--delete", "-q")
    assert "tree/odd/日本 é\n".encode() in other("ls", "-R").out
    program = "import cafcat; cafcat.open()"
    run = subprocess.run([sys.executable, "-c", program], env=other.environment, capture_output=True, text=True)
    assert "Python decodes names of files as ascii here" in run.stderr


def test_a_user_without_a_home_folder_can_name_a_home(alone: Cafcat, tmp_path: Path) -> None:
    """As `docker run --user 12345` does: there is neither HOME nor an entry in passwd."""
    no_home = "import platformdirs, cafcat.__main__\ndef fail(*_, **__): raise RuntimeError\n"
    program = f"{no_home}platformdirs.user_data_dir = fail\ncafcat.__main__.main()"
    environ = {name: value for name, value in alone.environment.items() if not name.startswith("CAFCAT_")}
    for words in (["ls"], ["config"], ["doctor"]):
        run = subprocess.run([sys.executable, "-c", program, *words], env=environ, capture_output=True, text=True)
        assert run.returncode == 2
        assert run.stderr.startswith("cafcat: this user has no home folder; ")
        assert "set CAFCAT_HOME, or use --home" in run.stderr


def test_completion(alone: Cafcat) -> None:
    for shell in ("bash", "zsh", "fish"):
        document = alone("completion", shell, "--json").document
        assert document["shell"] == shell
        assert "_CAFCAT_COMPLETE" in document["script"]
    alone("completion", "tcsh", code=2)
    asking = {"_CAFCAT_COMPLETE": "complete_bash", "COMP_WORDS": "cafcat ingest --on-conflict ", "COMP_CWORD": "3"}
    assert Cafcat(alone.folder, None, asking)().lines == ["replace", "skip", "fail"]


def test_the_bash_script_completes_verbs(alone: Cafcat) -> None:
    (alone.folder / "cafcat").write_text(f'#!/bin/sh\nexec {" ".join(alone.command())} "$@"\n')
    (alone.folder / "cafcat").chmod(0o755)
    script = alone("completion", "bash").text
    line = f"{script}\nCOMP_WORDS=(cafcat ext); COMP_CWORD=1; _cafcat_completion cafcat; echo ${{COMPREPLY[@]}}"
    path = f"{alone.folder}:{os.environ['PATH']}"
    shell = subprocess.run(
        ["bash", "-c", line], env=alone.environment | {"PATH": path}, capture_output=True, check=True
    )
    assert shell.stdout == b"extract\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_files_are_not_reused(cafcat: Cafcat, closed: str) -> None:
    """Otherwise a chunk could be opened with the descriptor of stdout, and receive printed text."""
    (cafcat.folder / "f").write_bytes(b"content")
    command = " ".join(map(str, cafcat.command("ingest", "-v", "f", "missing-is-said" if "2" in closed else "f")))
    subprocess.run(["sh", "-c", f"{command} {closed}"], cwd=cafcat.folder, env=cafcat.environment, check=False)
    if "2" not in closed:
        assert cafcat("cat", "f").out == b"content"
    assert cafcat("db", "check").code == 0


def test_output_to_a_closed_stdout_is_an_error(filled: Cafcat) -> None:
    for words in (["cat", "tree/a.txt"], ["export", "-o", "-", "--format", "tar"], ["ls"]):
        command = " ".join(map(str, filled.command(*words)))
        shell = ["sh", "-c", f"{command} >&-"]
        run = subprocess.run(shell, cwd=filled.folder, env=filled.environment, stderr=subprocess.PIPE, text=True)
        assert run.returncode == 1, words
        assert "Bad file descriptor" in run.stderr
    shell = ["sh", "-c", f"{' '.join(map(str, filled.command('ingest', 'tree', '-q')))} >&-"]
    assert subprocess.run(shell, cwd=filled.folder, env=filled.environment).returncode == 0


@pytest.mark.parametrize("words", [["ingest", "-q"], ["stat"]])
def test_ctrl_d_ends_a_list_that_is_typed(filled: Cafcat, words: list[str]) -> None:
    ours, theirs = pty.openpty()
    command = filled.command(*words, "--files-from", "-")
    with subprocess.Popen(
        command, cwd=filled.folder, env=filled.environment, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs
    ) as process:
        os.close(theirs)
        os.write(ours, b"tree/a.txt\n\x04")
        assert process.wait(PATIENCE_SECONDS) == 0
    os.close(ours)


def test_a_folder_that_is_gone(cafcat: Cafcat, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f"rmdir {gone}; exec {' '.join(map(str, cafcat.command('ls')))}"
    process = subprocess.run(
        ["sh", "-c", command], cwd=gone, env=cafcat.environment, capture_output=True, check=False
    )
    assert process.returncode == 2
    assert process.stderr == b"cafcat: the current folder is gone; cd to another folder\n"


def test_a_wrong_password_is_about_credentials(tmp_path: Path, debian_server: str) -> None:
    """Debian's server requires a password, over TCP or not, since pg_hba.conf demands scram."""
    with psycopg.connect(debian_server, autocommit=True) as server:
        file = Path(str(server.execute("SHOW hba_file").fetchone()[0]))  # type: ignore[index]
        before = file.read_text()
        server.execute("DROP ROLE IF EXISTS guarded")
        server.execute("CREATE ROLE guarded LOGIN PASSWORD 'right'")
        try:
            file.write_text(f"local all guarded scram-sha-256\n{before}")
            server.execute("SELECT pg_reload_conf()")
            url = psycopg.conninfo.make_conninfo(debian_server, user="guarded", password="hunter2")  # noqa: S106
            result = Cafcat(tmp_path, url)("ls", code=12)
            assert "refused the login" in result.err
            assert "hunter2" not in result.err
        finally:
            file.write_text(before)
            server.execute("SELECT pg_reload_conf()")
            server.execute("DROP ROLE guarded")
