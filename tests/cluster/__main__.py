"""Packs a bucket with a cluster of hosts while parts of it fail: `python -m tests.cluster --engine dask`.

The hosts are network namespaces. A worker is killed, one is cut off from the database, one from the store, the
scheduler and the client are killed. The same command runs again until it succeeds. Then every object must have been
packed once, and no page of the listing may have been requested more often than workers were lost.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import psycopg

from cafcat.catalog import schema
from tests.cluster.engines import ENGINES
from tests.cluster.faults import FAULTS, Faults, say
from tests.cluster.hosts import Network, missing
from tests.cluster.objects import content, keys, left_over, make_objects
from tests.cluster.services import CountedStore, database, store

SOURCE, CHUNKS = "source", "chunks"
PROJECT = Path(__file__).parents[2]
POLL_SECONDS = 0.5
MOST_COMMANDS = 20
PAGE = 1000
AHEAD_PAGES = 8
"""Pages of a shard that a worker may have listed since its last commit."""


def main() -> int:
    options = arguments()
    if reason := missing():
        sys.exit(f"cannot run: {reason}")
    folder = Path(tempfile.mkdtemp(prefix="cafcat-cluster-", dir=options.folder))
    folder.chmod(0o755)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    try:
        with ExitStack() as opened:
            network = opened.enter_context(Network())
            url = opened.enter_context(database(folder / "postgres"))
            counted = opened.enter_context(store(folder / "store", options.store))
            return run(options, folder, network, url, counted)
    finally:
        if not options.keep:
            shutil.rmtree(folder)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("--engine", choices=ENGINES, required=True)
    parser.add_argument("--objects", type=int, default=2000)
    parser.add_argument("--store", default="seaweedfs", help="kind of the S3 server: see tests/s3_servers/kinds.py")
    parser.add_argument("--target-size", default="8MB", help="size of chunks")
    parser.add_argument("--no-faults", action="store_true")
    parser.add_argument("--folder", help="where temporary files are")
    parser.add_argument("--keep", action="store_true", help="keep the temporary files")
    return parser.parse_args()


def run(options: argparse.Namespace, folder: Path, network: Network, url: str, counted: CountedStore) -> int:
    schema.upgrade(url)
    begin = time.monotonic()
    make_objects(counted.server, SOURCE, options.objects)
    counted.server.client().create_bucket(Bucket=CHUNKS)
    say(f"{options.objects} objects were made in {time.monotonic() - begin:.0f} s")
    environment = environment_of(folder, url, counted, options)
    engine = ENGINES[options.engine]
    own = folder / "own"
    own.mkdir()
    network.scheduler.serve(engine.scheduler(own), environment, folder / "scheduler.log", own)
    for host in network.workers:
        work = folder / host.name
        home = {"HOME": str(work), "CAFCAT_HOME": str(work / "cafcat")}
        work.mkdir()
        host.serve(engine.worker(host, work), {**environment, **home}, folder / f"{host.name}.log", own)
    wait_for_workers(engine.url, environment, network)
    commands = Commands(engine.url, environment, folder / "client.log")
    faults = Faults(network, url, options.objects, commands.kill, left=[] if options.no_faults else list(FAULTS))
    begin = time.monotonic()
    commands.until_success(faults)
    seconds = time.monotonic() - begin
    say(f"packed in {seconds:.0f} s, {options.objects / seconds:.0f} objects/s, {commands.count} commands")
    listings = counted.listings(SOURCE)
    subprocess.run([sys.executable, "-m", "cafcat", "recover"], env=environment, check=True)
    expected = {f"{key}": content(key) for key in keys(options.objects)}
    found = left_over(url, counted.server, CHUNKS, expected)
    found += [f"the fault did not happen: {fault.name}" for fault in faults.left]
    found += report_listings(listings, options.objects, url)
    for problem in found[:20]:
        say(f"PROBLEM: {problem}")
    say("every object was packed once" if not found else f"{len(found)} problems")
    return 1 if found else 0


def report_listings(listings: Counter[str], objects: int, url: str) -> list[str]:
    """Print what was listed. Return a problem if pages were listed twice without need.

    An attempt at a shard lists a page that is not full. It also requests the next page while it packs the last
    one, unless the last one shows the end of the shard. A lost worker may have listed pages that it did not pack.
    """
    with psycopg.connect(url) as connection:
        query = "SELECT count(*), sum(attempts), sum(greatest(attempts - 1, 0)) FROM shards"
        [(shards, attempts, lost)] = connection.execute(query)
    openings = sum(count for page, count in listings.items() if is_opening(page))
    cuts = sum(count for page, count in listings.items() if "delimiter" in page)
    pages, needed = listings.total() - openings - cuts, -(-objects // PAGE)
    say(f"{shards} shards, {attempts} attempts; LIST requests: {openings} to open the source,")
    say(f"{cuts} to cut it, {pages} to list it; {needed} would be full pages")
    most = needed + 2 * int(attempts) + AHEAD_PAGES * int(lost)
    return [f"{pages} pages were listed, and at most {most} are explained"] if pages > most else []


def is_opening(page: str) -> bool:
    return "start-after" not in page and "continuation-token" not in page and "delimiter" not in page


def environment_of(folder: Path, url: str, counted: CountedStore, options: argparse.Namespace) -> dict[str, str]:
    ours = ("CAFCAT_", "AWS_", "RAY_", "DASK_")
    proxies = {"http_proxy", "https_proxy", "all_proxy"}
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(ours) and name.lower() not in proxies
    }
    home = folder / "home"
    home.mkdir()
    return {
        **inherited,
        **counted.server.environ(),
        "NO_PROXY": "*",
        "no_proxy": "*",
        "HOME": str(home),
        "PYTHONPATH": str(PROJECT),
        "CAFCAT_HOME": str(home / "cafcat"),
        "CAFCAT_DATABASE_URL": url,
        "CAFCAT_STORE": f"s3://{CHUNKS}/pre/fix",
        "CAFCAT_TARGET_SIZE": options.target_size,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",  # the hosts have homes of their own
    }


def wait_for_workers(url: str, environment: Mapping[str, str], network: Network) -> None:
    """Wait until all workers have joined. Their number is asked in other processes, as a user would."""
    code = "import sys; from cafcat.clusters import open_cluster\n"
    code += "with open_cluster(sys.argv[1]) as cluster: print(cluster.executor.worker_count())"
    deadline = time.monotonic() + 120
    while True:
        command = [sys.executable, "-c", code, url]
        asked = subprocess.run(command, env=dict(environment), capture_output=True, text=True, check=False)
        if asked.stdout.strip() == str(len(network.workers)):
            return
        for host in network.hosts:
            host.watch()
        if time.monotonic() > deadline:
            sys.exit(f"the workers do not join: {asked.stdout} {asked.stderr[-2000:]}")
        time.sleep(1)


class Commands:
    """The command of the user, which is given again until it succeeds."""

    def __init__(self, url: str, environment: Mapping[str, str], log: Path) -> None:
        self._environment = environment
        self._arguments = [sys.executable, "-m", "cafcat", "ingest", f"s3://{SOURCE}", "--cluster", url]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.count = 0

    def until_success(self, faults: Faults) -> None:
        while self.count < MOST_COMMANDS:
            if self._once(faults) == 0:
                return
            time.sleep(3)
        sys.exit("the command does not succeed")

    def _once(self, faults: Faults) -> int:
        self.count += 1
        with open(self._log, "ab") as log:
            process = subprocess.Popen(
                self._arguments, env=dict(self._environment), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._process = process
        while process.poll() is None:
            faults.look()
            time.sleep(POLL_SECONDS)
        last = self._log.read_text(errors="replace").splitlines() or [""]
        say(f"command {self.count} ended with {process.returncode}: {last[-1][:300]}")
        return process.returncode

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()


if __name__ == "__main__":
    sys.exit(main())
