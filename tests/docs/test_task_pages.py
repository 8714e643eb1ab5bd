"""Every command of docs/tasks/ runs in a fresh folder with a fresh catalog, and prints the output of its page."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from psycopg.conninfo import conninfo_to_dict

from cafcat.catalog import schema
from tests.s3_servers.keeper import free_ports
from tests.worlds.memory import in_memory
from tests.worlds.page_shell import Page, PageShell, program_of_cafcat
from tests.worlds.servers.s3_server import S3Server
from tests.worlds.servers.services import Databases, missing_service, url_of

TASKS = Path(__file__).parents[2] / "docs" / "tasks"
NUMBERS = {
    "photos/2025/dog.jpg": 1000,
    "photos/2026/cat.jpg": 2000,
    "photos/2026/fox.jpg": 300,
    "photos/notes.txt": 3,
}
"""The files that the pages pack, and how many lines each has."""
MODIFIED_SECONDS = 1_795_255_200
ON_ONE_MACHINE = ("first-archive", "cron", "restoring-store")
WITH_A_SERVER = {"restoring": ("archive2",)}
WITH_A_BUCKET = {"bucket": ("objects",), "moving": ("archive3",), "sharing": ()}
NOT_RUN = ("docker", "kubernetes", "systemd")
"""Pages for programs that do not run on the machine of the tests. Their files are checked one by one."""
SLOW = {"restoring", "restoring-store"}
"""Pages that lose several embedded databases: a new one takes two seconds of CPU time."""


@pytest.fixture
def root() -> Iterator[Path]:
    """An empty folder. Embedded databases below it are stopped at the end."""
    with in_memory() as folder:
        yield folder
        with program_of_cafcat() as programs:
            for running in folder.glob("**/postgres.running"):
                subprocess.run([programs / "cafcat", "--home", running.parent, "db", "stop", "-q"], check=False)


@pytest.fixture
def server(quick_databases: Databases) -> dict[str, str]:
    """Variables with which `createdb`, `psql` and postgresql:///NAME reach a Postgres server."""
    if not shutil.which("createdb"):
        missing_service("createdb")
    given = conninfo_to_dict(quick_databases.conninfo)
    return {"PGHOST": str(given["host"]), "PGUSER": str(given["user"]), "PGPORT": str(given["port"])}


@pytest.fixture
def own_names(quick_databases: Databases) -> Iterator[Callable[[tuple[str, ...]], dict[str, str]]]:
    """A function that makes names of databases, for those on a page. The databases are dropped at the end."""
    made = dict[str, str]()

    def make(names: tuple[str, ...]) -> dict[str, str]:
        made.update({name: f"cafcat_test_{uuid.uuid4().hex}" for name in names})
        return dict(made)

    yield make
    for name in made.values():
        quick_databases.drop(name)


def some(names: Iterable[str]) -> list[Any]:
    """Return parameters for pages."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in names]


def shell_with_photos(root: Path, names: dict[str, str], environment: dict[str, str]) -> PageShell:
    """Return a shell whose home has the folder `photos`."""
    shell = PageShell(root, names, environment)
    for name, count in NUMBERS.items():
        file = shell.home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{number}\n" for number in range(count)))
        os.utime(file, (MODIFIED_SECONDS, MODIFIED_SECONDS))
    return shell


def bucket_of_objects(server: S3Server, bucket: str) -> str:
    """Write 40 objects into four folders of a bucket, and return its name."""
    client = server.client(max_attempts=3)
    for number in range(40):
        key = f"2026/{number % 4:02}/{number:04}.jpg"
        client.put_object(Bucket=bucket, Key=key, Body=b"x" * (1000 + number))
    return bucket


@pytest.mark.parametrize("name", some(ON_ONE_MACHINE))
def test_a_page_with_the_embedded_database(root: Path, name: str) -> None:
    shell_with_photos(root, {}, {}).run(Page(TASKS / f"{name}.md"))


@pytest.mark.parametrize("name", some(WITH_A_SERVER))
def test_a_page_with_a_database_server(
    root: Path, server: dict[str, str], own_names: Callable[[tuple[str, ...]], dict[str, str]], name: str
) -> None:
    shell_with_photos(root, own_names(WITH_A_SERVER[name]), server).run(Page(TASKS / f"{name}.md"))


@pytest.mark.parametrize("name", some(WITH_A_BUCKET))
def test_a_page_with_a_bucket(
    root: Path,
    server: dict[str, str],
    s3_server: S3Server,
    make_bucket: Callable[[], str],
    own_names: Callable[[tuple[str, ...]], dict[str, str]],
    name: str,
) -> None:
    names = own_names(WITH_A_BUCKET[name]) | {"s3://archive": f"s3://{make_bucket()}"}
    if name == "bucket":
        names["s3://incoming"] = f"s3://{bucket_of_objects(s3_server, make_bucket())}"
    if name == "sharing":
        names |= dict(zip(("8320", "8333"), map(str, free_ports(2)), strict=True))
    environment = server | s3_server.environ()
    shell_with_photos(root, names, environment).run(Page(TASKS / f"{name}.md"))


def test_the_page_about_upgrading(
    root: Path,
    server: dict[str, str],
    quick_databases: Databases,
    own_names: Callable[[tuple[str, ...]], dict[str, str]],
) -> None:
    (name,) = (names := own_names(("archive4",))).values()
    subprocess.run(["createdb", name], env={**os.environ, **server}, check=True)
    command.upgrade(schema._config(url_of(quick_databases.conninfo, name)), "0009")
    shell_with_photos(root, names, server).run(Page(TASKS / "upgrading.md"))


def test_every_page_is_run() -> None:
    run = {*ON_ONE_MACHINE, *WITH_A_SERVER, *WITH_A_BUCKET, "upgrading"}
    assert {page.stem for page in TASKS.glob("*.md")} == {"README", *run, *NOT_RUN}


def test_a_page_that_is_not_run_gives_the_reason() -> None:
    for page in map(Page, TASKS.glob("*.md")):
        for block in page.blocks:
            assert block.kind or block.language == "console", f"{page.path.name}: {block.text}"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_accepts_the_units(root: Path) -> None:
    for unit in [*(TASKS / "systemd").glob("*.service"), *(TASKS / "systemd").glob("*.timer")]:
        text = re.sub(r"^(ExecStart|ExecStop)=\S+", r"\1=/bin/true", unit.read_text(), flags=re.MULTILINE)
        (root / unit.name).write_text(text)
    units = sorted([*root.glob("*.service"), *root.glob("*.timer")])
    assert len(units) == 5
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_nightly_tells_a_monitor_its_exit_code(root: Path) -> None:
    shell = shell_with_photos(root, {}, {"PING_URL": "https://monitor.example/ping"})
    shell.write_files(Page(TASKS / "cron.md"))
    shell.write_program("curl", 'echo "$@" >> ~/pings')
    shell.write_program("cafcat", 'test "$1" != verify || exit 5')
    assert shell.execute("./nightly.sh > mail").returncode == 5
    assert (shell.home / "pings").read_text().split()[-1] == "https://monitor.example/ping/5"
    assert (shell.home / "mail").read_text() == (
        "cafcat verify: exit code 5\n\ncafcat verify --level data --older-than 90d: exit code 5\n\n"
    )
    assert "prune" not in (shell.home / ".local/state/nightly.log").read_text()


def test_the_lock_of_nightly_ends_with_a_killed_script(root: Path) -> None:
    shell = shell_with_photos(root, {}, {})
    shell.write_files(Page(TASKS / "cron.md"))
    shell.write_program("cafcat", "echo $$ > ~/command; exec sleep 60")
    killed = shell.execute(
        "./nightly.sh & until test -s ~/command; do sleep 0.05; done; kill -KILL $!; wait $!; "
        "flock --nonblock ~/.local/state/nightly.lock true; echo $?; kill $(cat ~/command)"
    )
    assert killed.stdout.splitlines()[-1] == "0"
    assert killed.returncode == 0, "the command still ran"


MANIFESTS = sorted((TASKS / "kubernetes").glob("*.yaml"))


def documents(manifest: Path) -> list[dict[str, Any]]:
    """Return the documents of a manifest."""
    return list(pytest.importorskip("yaml").safe_load_all(manifest.read_text()))


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: manifest.name)
def test_kubernetes_accepts_the_manifests(manifest: Path) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    for document in documents(manifest):
        kubernetes_validate.validate(document, "1.30", strict=True)


def nightly_script() -> str:
    """Return the script of the CronJob."""
    (job,) = documents(TASKS / "kubernetes" / "nightly.yaml")
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["/bin/sh", "-c"]
    (script,) = container["args"]
    return str(script)


def test_the_script_of_the_cron_job_runs(root: Path) -> None:
    shell = shell_with_photos(root, {}, {})
    script = nightly_script().replace("/srv/photos", "photos")
    done = shell.execute(f"sh -c {shlex.quote(script)}")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "nothing to prune")
    next(shell.home.glob(".local/share/cafcat/chunks/*.caf")).write_bytes(b"")
    assert shell.execute(f"sh -c {shlex.quote(script)}").returncode == 5


def test_the_script_of_the_cron_job_passes_on_sigterm(root: Path) -> None:
    shell = shell_with_photos(root, {}, {})
    shell.write_program(
        "cafcat", "trap 'echo committed >> ~/log; exit 130' TERM; echo $1 >> ~/log; while :; do sleep 0.05; done"
    )
    begin = (
        f"sh -c {shlex.quote(nightly_script())} & until test -s ~/log; do sleep 0.05; done; kill -TERM $!; wait $!"
    )
    assert shell.execute(begin).returncode == 130
    assert (shell.home / "log").read_text() == "ingest\ncommitted\n"


def test_compose_names_services_that_exist() -> None:
    (ours,) = documents(TASKS / "docker" / "docker-compose.cafcat.yml")
    (servers,) = documents(TASKS.parents[1] / "docker-compose.yml")
    services = ours["services"] | servers["services"]
    assert len(services) == len(ours["services"]) + len(servers["services"])
    for service in ours["services"].values():
        assert (TASKS.parents[1] / service["build"]["dockerfile"]).exists()
        for name, condition in service["depends_on"].items():
            assert condition["condition"] != "service_healthy" or "healthcheck" in services[name]


def test_hadolint_accepts_the_dockerfile() -> None:
    program = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if program is None:
        pytest.skip("needs hadolint")
    command_line = [program, TASKS / "docker" / "Dockerfile"]
    checked = subprocess.run(command_line, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout) == (0, "")


@pytest.mark.parametrize(
    "commands", ["$ echo one\ntwo", "$ echo one\n$ false", "$ echo one\none\nmore", "$ printf 'a\\nb\\n'\nb\n..."]
)
def test_a_page_with_wrong_output_fails(root: Path, commands: str) -> None:
    page = root / "page.md"
    page.write_text(f"```console\n{commands}\n```\n")
    with pytest.raises(AssertionError):
        PageShell(root, {}, {}).run(Page(page))


def test_a_page_leaves_out_lines_and_words(root: Path) -> None:
    page = root / "page.md"
    page.write_text(
        "```console\n$ seq 9\n1\n...\n9\n$ echo took 0.3 s in /srv/x\ntook 7 s in /s…x\n$ false\n$ echo $?\n```\n"
    )
    PageShell(root, {}, {}).run(Page(page))
