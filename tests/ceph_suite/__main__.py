"""Run the suite: `python -m tests.ceph_suite CHECKOUT [--every] [argument of pytest...]`.

CHECKOUT is a folder with https://github.com/ceph/s3-tests. Its tests need the packages munch, isodate and pytz.
With --every, the tests that do not apply are run, too. Exits 1 if a test fails.
"""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import cafcat
from cafcat.serve.s3.keys import NewKey, add_key
from tests.ceph_suite.proxy import WritingProxy
from tests.ceph_suite.selection import Selection
from tests.ceph_suite.writes import Buckets
from tests.worlds.memory import use_memory
from tests.worlds.waiting import PATIENCE_SECONDS

USERS = ("s3 main", "s3 alt", "s3 tenant", "iam", "iam root", "iam alt root")
"""Sections of the suite's configuration. The first user may read all files, the others folders of their own."""
HEAD = """
[DEFAULT]
host = 127.0.0.1
port = {port}
is_secure = False

[fixtures]
bucket prefix = cafcat-{{random}}-
"""
SECTION = """
[{name}]
display_name = cafcat
user_id = cafcat
email = nobody@example.org
api_name = us-east-1
tenant = nobody
access_key = {key.access_key_id}
secret_key = {key.secret_access_key}
"""


@contextlib.contextmanager
def serving(home: Path, *arguments: str) -> Iterator[str]:
    """Run `cafcat serve` until the `with` block ends, and return the URL of its S3 side."""
    command = [sys.executable, "-m", "cafcat", "serve", "--no-http", "--s3-port", "0", *arguments]
    log = home / f"log{len(arguments)}"
    environment = os.environ | {"CAFCAT_HOME": str(home)}
    process = subprocess.Popen([*command, "--access-log", log], env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        found = re.fullmatch(r"cafcat: serving files at (\S+)/ \(S3\)\n", process.stderr.readline())
        assert found, process.communicate()
        yield found[1]
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)
        process.stderr.close()


def configuration(port: int, keys: dict[str, NewKey]) -> str:
    """Return the configuration file of the suite."""
    return HEAD.format(port=port) + "".join(SECTION.format(name=name, key=key) for name, key in keys.items())


def run(checkout: Path, home: Path, selection: Selection, arguments: list[str]) -> int:
    with contextlib.ExitStack() as stack:
        repository = stack.enter_context(cafcat.open(home=home))
        keys = {
            name: add_key(repository.session, f"of {name}" if number else ".") for number, name in enumerate(USERS)
        }
        buckets = Buckets(repository, keys[USERS[0]].access_key_id)
        private, public = stack.enter_context(serving(home)), stack.enter_context(serving(home, "--public", "."))
        proxy = stack.enter_context(WritingProxy(buckets, private, public))
        selection.count_made_up = lambda: proxy.made_up
        (home / "suite.conf").write_text(configuration(proxy.port, keys))
        # The C library of boto3 signs no URL that is expired at once, as one test wants it.
        own = {"S3TEST_CONF": str(home / "suite.conf"), "NO_PROXY": "127.0.0.1", "BOTO_DISABLE_CRT": "true"}
        os.environ |= own
        settings = ["-c", str(checkout / "pytest.ini"), "--rootdir", str(checkout), "-p", "no:cacheprovider"]
        tests = str(checkout / "s3tests/functional")
        return int(pytest.main([*settings, "-q", "--tb=short", tests, *arguments], plugins=[selection]))


def main(arguments: list[str]) -> int:
    if not arguments:
        print(__doc__)
        return 2
    use_memory()
    sys.dont_write_bytecode = True  # nothing is written into the checkout
    for name in [name for name in os.environ if name.startswith(("AWS_", "CAFCAT_"))]:
        del os.environ[name]
    selection = Selection(runs_every="--every" in arguments)
    more = [argument for argument in arguments[1:] if argument != "--every"]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        try:
            return run(Path(arguments[0]).resolve(), home, selection, more)
        finally:
            environment = os.environ | {"CAFCAT_HOME": str(home)}
            subprocess.run([sys.executable, "-m", "cafcat", "db", "stop"], env=environment, capture_output=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
