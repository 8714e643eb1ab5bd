"""`make bench-s3`: S3 against its peers, on one real S3 server, in turn, as ratios.

Reading: 4 KiB ranges of one chunk, by one process: cafcat.Repository.read (look-up in the catalog, one ranged GET,
checksum), boto3's get_object, obstore's get_range; then the same from eight threads. Packing: a bucket of small and
of large objects into chunks of another bucket, catalog committed, against `aws s3 sync` of the same bucket to an
empty folder; whole processes.
"""

import argparse
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path

import cafcat
from cafcat.repository import Repository
from tests.bench.bucket import object_store
from tests.worlds.servers.s3_server import DEVELOPERS_OWN, S3Server, any_server, empty_bucket, new_bucket

FILE_BYTES = 4096
READS = 400
THREADS = 8


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return wall seconds, and CPU seconds of this process."""
    begun, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - begun, time.process_time() - cpu


def figure(values: list[float], digits: int = 2) -> str:
    return f"{statistics.median(values):.{digits}f} [{min(values):.{digits}f}-{max(values):.{digits}f}]"


def fill(server: S3Server, bucket: str, sizes: list[int]) -> int:
    """Write objects of these sizes, with the same bytes in each run. Return their total size."""
    client, noise = server.client(max_attempts=5), random.Random(5).randbytes(1 << 20)
    bodies = {size: (noise * (size // len(noise) + 1))[:size] for size in set(sizes)}

    def put(numbered: tuple[int, int]) -> None:
        number, size = numbered
        client.put_object(Bucket=bucket, Key=f"{number // 500:03}/{number:06}.dat", Body=bodies[size])

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(put, enumerate(sizes)))
    return sum(sizes)


class Reading:
    """Reads the ranges of one object in one order, in three ways."""

    def __init__(self, server: S3Server, repository: Repository, bucket: str) -> None:
        import boto3

        self.repository = repository
        self.places = list(repository.list())
        random.Random(6).shuffle(self.places)
        self.bucket = bucket
        self.client = server.client()
        self.client = boto3.client("s3", config=self.client.meta.config)
        self.objects = object_store(server, bucket)

    def cafcat(self, n: int) -> int:
        return len(self.repository.read(self.places[n % len(self.places)].path))

    def boto3(self, n: int) -> int:
        place = self.places[n % len(self.places)]
        header = f"bytes={place.start_byte}-{place.end_byte - 1}"
        return len(self.client.get_object(Bucket=self.bucket, Key=place.object_key, Range=header)["Body"].read())

    def obstore(self, n: int) -> int:
        import obstore

        place = self.places[n % len(self.places)]
        return len(obstore.get_range(self.objects, place.object_key, start=place.start_byte, end=place.end_byte))

    def compare(self, rounds: int, threads: int) -> None:
        ways = {"boto3": self.boto3, "obstore": self.obstore, "Repository.read": self.cafcat}
        rates: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for way in ways.values():
            way(0)
        for _ in range(rounds):
            for name, way in ways.items():
                rates[name].append(timed(lambda way=way: self.all_reads(way, threads)))
        self.show(rates, threads)

    def all_reads(self, way: Callable[[int], int], threads: int) -> None:
        if threads == 1:
            sizes = [way(n) for n in range(READS)]
        else:
            with ThreadPoolExecutor(threads) as pool:
                sizes = list(pool.map(way, range(READS)))
        assert set(sizes) == {FILE_BYTES}

    def show(self, rates: dict[str, list[tuple[float, float]]], threads: int) -> None:
        print(f"\n| {READS} ranged GETs of 4 KiB, {threads} at once | GETs/s | ratio to obstore | client CPU, ms |")
        print("|---|---|---|---|")
        base = [wall for wall, _ in rates["obstore"]]
        for name, measured in rates.items():
            per_second = [READS / wall for wall, _ in measured]
            ratio = [other / wall for (wall, _), other in zip(measured, base, strict=True)]
            cpu = [1000 * spent / READS for _, spent in measured]
            print(f"| {name} | {figure(per_second, 0)} | {figure(ratio)} | {figure(cpu)} |")


class Packing:
    """Packs a bucket into chunks, or copies it into a folder; each in a new process, with nothing prepared."""

    def __init__(self, server: S3Server, folder: Path, aws: Path | None) -> None:
        self.server, self.folder, self.aws = server, folder, aws
        self.home = folder / "packing-home"
        self.call = (sys.executable, "-m", "cafcat")

    def compare(self, name: str, sizes: list[int], rounds: int) -> None:
        bucket = new_bucket(self.server.client())
        total = fill(self.server, bucket, sizes)
        self.ingest(bucket), self.sync(bucket)  # warm-up
        pairs = [(self.sync(bucket), self.ingest(bucket)) for _ in range(rounds)]
        print(f"\n| {name}: {len(sizes):,} objects, {total:,} bytes | seconds | objects/s | MB/s | ratio to sync |")
        print("|---|---|---|---|---|")
        ratios = [ours / theirs for theirs, ours in pairs if theirs]
        self.show("`aws s3 sync` to a folder", [pair[0] for pair in pairs], len(sizes), total, "1")
        self.show(
            "`cafcat ingest` to chunks in S3", [p[1] for p in pairs], len(sizes), total, figure(ratios or [0])
        )
        empty_bucket(self.server.client(max_attempts=5), bucket)

    def show(self, name: str, seconds: list[float], files: int, size_bytes: int, ratio: str) -> None:
        if not any(seconds):
            print(f"| {name} | not there: pip install awscli | | | |")
            return
        per_second = [files / each for each in seconds]
        megabytes = [size_bytes / each / 1e6 for each in seconds]
        print(f"| {name} | {figure(seconds)} | {figure(per_second, 0)} | {figure(megabytes)} | {ratio} |")

    def ingest(self, bucket: str) -> float:
        target = new_bucket(self.server.client())
        environment = os.environ | {"CAFCAT_HOME": str(self.home), "CAFCAT_STORE": f"s3://{target}"}
        subprocess.run([*self.call, "db", "init"], env=environment, check=True, stdout=subprocess.DEVNULL)
        command = [*self.call, "ingest", "-q", f"s3://{bucket}"]
        wall, _ = timed(lambda: subprocess.run(command, env=environment, check=True))
        subprocess.run([*self.call, "db", "stop"], env=environment, check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(self.home)
        empty_bucket(self.server.client(max_attempts=5), target)
        return wall

    def sync(self, bucket: str) -> float:
        if self.aws is None:
            return 0.0
        folder = self.folder / "synced"
        command = [str(self.aws), "s3", "sync", "--quiet", f"s3://{bucket}", str(folder)]
        wall, _ = timed(lambda: subprocess.run(command, check=True))
        shutil.rmtree(folder)
        return wall


def aws_program(folder: Path) -> Path | None:
    """Return `aws` of the machine, or of a new environment with awscli from PyPI; None if that fails."""
    found = shutil.which("aws")
    if found:
        return Path(found)
    place = folder / "awscli"
    try:
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        subprocess.run([place / "bin/pip", "install", "--quiet", "awscli"], check=True)
    except subprocess.CalledProcessError:
        return None
    return place / "bin/aws"


def measure(server: S3Server, folder: Path, rounds: int, objects: int) -> None:
    aws = aws_program(folder)
    version = (
        subprocess.run([aws, "--version"], capture_output=True, text=True).stdout.split() if aws else ["no awscli"]
    )
    print(f"cafcat {cafcat.__version__}, Python {platform.python_version()}, {version[0]}, {os.cpu_count()} cores")
    print(f"{rounds} rounds, median [min-max]")
    bucket, source = new_bucket(server.client()), new_bucket(server.client())
    fill(server, source, [FILE_BYTES] * READS)
    with cafcat.open(home=folder / "reading-home", store=f"s3://{bucket}") as repository:
        repository.ingest([f"s3://{source}"])
        reading = Reading(server, repository, bucket)
        for threads in (1, THREADS):
            reading.compare(rounds, threads)
    subprocess.run(
        [sys.executable, "-m", "cafcat", "db", "stop", "--home", str(folder / "reading-home")],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    packing = Packing(server, folder, aws)
    small = [size for size, _ in zip(cycle([1024, 2048, 4096]), range(objects), strict=False)]
    packing.compare("small objects", small, rounds)
    packing.compare("large objects", [64 << 20] * 8, rounds)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--objects", type=int, default=2000)
    given = options.parse_args()
    for name in [*DEVELOPERS_OWN, *(name for name in os.environ if name.startswith("CAFCAT_"))]:
        if name != "CAFCAT_TEST_S3_URL":
            os.environ.pop(name, None)
    with tempfile.TemporaryDirectory(prefix="cafcat-bench-") as name, any_server(Path(name)) as server:
        os.environ.update(server.environ())
        measure(server, Path(name), given.rounds, given.objects)


if __name__ == "__main__":
    main()
