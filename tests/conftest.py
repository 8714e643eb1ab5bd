"""Fixtures for all tests. Their parts are in tests/worlds/."""

import gc
import os
import random
import signal
import zlib

import pytest

from tests.hypothesis_profiles import load_profile, replay_hint
from tests.worlds.lanes import add_markers
from tests.worlds.memory import disk_path, use_memory
from tests.worlds.servers.clouds import azure, cloud, cloud_bucket, cloud_proxy, google
from tests.worlds.servers.s3_proxy import s3_proxy, s3_proxy_environment
from tests.worlds.servers.s3_server import make_bucket, s3_bucket, s3_environment, s3_server
from tests.worlds.servers.services import (
    database_url,
    database_url_15,
    databases,
    databases_15,
    debian_server,
    empty_database_url,
    empty_database_url_15,
    postgres_server,
    quick_databases,
)

__all__ = [
    "azure",
    "cloud",
    "cloud_bucket",
    "cloud_proxy",
    "database_url",
    "database_url_15",
    "databases",
    "databases_15",
    "debian_server",
    "disk_path",
    "empty_database_url",
    "empty_database_url_15",
    "google",
    "make_bucket",
    "postgres_server",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_runtest_setup",
    "pytest_terminal_summary",
    "quick_databases",
    "s3_bucket",
    "s3_environment",
    "s3_proxy",
    "s3_proxy_environment",
    "s3_server",
]

# A shell starts background programs with SIGINT ignored, nohup with SIGHUP ignored. All commands under test would
# ignore these signals, too.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# If this variable is set, each of thousands of commands under test compiles all of cafcat again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# pytest makes its folders after this.
use_memory()

# Before any test is imported: settings of tests are made from the profile.
load_profile()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give each test the same random numbers in every run, whichever tests ran before."""
    random.seed(item.nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", metavar="I/N", help="run the I-th of N parts of the tests, from 0 on")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that `make test` leaves out, before `-m` is applied, and leave out those of other parts."""
    add_markers(items)
    part = config.getoption("--part")
    if part is not None:
        number, parts = map(int, part.split("/"))
        items[:] = [item for item in items if zlib.crc32(item.nodeid.encode()) % parts == number % parts]


def pytest_collection_finish() -> None:
    """Exclude modules and tests, which stay to the end, from garbage collections: this saves 3 % of the time."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the command that repeats a run of random examples."""
    hint = replay_hint(config.getoption("--hypothesis-seed", None))
    if hint:
        terminalreporter.line(f"The same examples again: {hint}")
