"""Every command of docs/tasks/ runs in a fresh folder with a fresh catalog, and prints the output of its page."""

import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from psycopg.conninfo import conninfo_to_dict

from cafcat.catalog import schema
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
WITH_A_BUCKET = {"moving": ("archive3",)}
NOT_RUN = ("systemd",)
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
    page = Page(TASKS / "systemd.md")
    for block in page.blocks:
        if block.kind == "file":
            text = re.sub(r"^ExecSt(art|op)=/opt/cafcat/bin/cafcat", r"ExecSt\1=/bin/true", block.text, flags=re.M)
            (root / Path(block.note).name).write_text(text)
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
