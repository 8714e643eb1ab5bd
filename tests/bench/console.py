"""python -m tests.bench.console: the time of each page of the console in catalogs of different sizes, as a table.

Pages are rendered in this process, without a browser and a network. The other rows are synthetic: chunks of 10,000
files, of which a fifth as many files were replaced or removed.
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

import psycopg

from cafcat.embedded.roles import SUPERUSER
from cafcat.serve.s3.options import S3Options
from tests.bench.bench import forget_settings
from tests.bench.machine import described, shown_command
from tests.bench.table import number
from tests.console.client import console
from tests.console.world import fill, pages
from tests.worlds.servers.services import Databases, temporary_server
from tests.worlds.size_world import SizeWorld

SIZES = (10_000, 1_000_000)
Times = dict[str, list[float]]
"""Milliseconds by page, sorted."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.console", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=SIZES, help="sizes of the catalogs, in files")
    parser.add_argument("--rounds", type=int, default=40, help="requests for each page")
    options = parser.parse_args()
    forget_settings()
    columns: list[Times] = []
    with tempfile.TemporaryDirectory(prefix="cafcat-bench-") as name, temporary_server() as server:
        conninfo = server.conninfo("postgres", SUPERUSER)
        with psycopg.connect(conninfo) as connection:
            version = str(connection.info.server_version // 10_000)
        command = shown_command(sys.argv[1:]).replace("tests.bench", "tests.bench.console")
        print(f"`{command}`, {described(Path(name), version)}", flush=True)
        for rows in options.rows:
            folder = Path(name) / str(rows)
            folder.mkdir()
            with contextlib.closing(Databases(conninfo)) as databases:
                columns.append(measured(databases, folder, rows, options.rounds))
    print(f"\nMilliseconds of {options.rounds} requests: median, and 95th percentile.\n")
    print(table(options.rows, columns))


def measured(databases: Databases, folder: Path, rows: int, rounds: int) -> Times:
    """Return the times in a catalog with this number of synthetic files, and fresh statistics."""
    with databases.fresh(databases.template()) as url:
        world = SizeWorld(folder, url)
        with world.repository() as repository:
            fill(repository, folder)
            world.grow(rows)
            world.sql("VACUUM (ANALYZE)")
            [(chunk, path)] = world.sql(
                "SELECT c.uuid::text, l.file_path FROM chunks AS c, file_locations AS l "
                f"WHERE c.id = l.caf_file_id AND l.file_path LIKE 'synthetic/{rows // 1000:08}/%' LIMIT 1"
            )
            urls = {name: page for name, page in pages(repository).items() if not name.startswith("view-")}
            urls |= {"chunk of 10,000": f"chunk?uuid={chunk}", "file of many": f"file?path={quote(str(path))}"}
            urls |= {"many folders": "browse?path=synthetic/", "no match": "search?q=synthetic/**/none"}
            urls |= {f"view {name}": f"view?name={name}" for name in ("files", "folders", "chunk_health", "runs")}
            urls |= {"view lost_with": f"view?name=lost_with&chunk={chunk}"}
            return timed(repository, urls, rounds)


def timed(repository: object, urls: dict[str, str], rounds: int) -> Times:
    times: Times = {name: [] for name in urls}
    with console(repository, s3=S3Options(public=(".",))) as client:  # type: ignore[arg-type]
        for round in range(rounds + 1):
            for name, url in urls.items():
                begun = time.perf_counter()
                status = client.get(f"/-/{url}").status
                if round:  # the first request compiles the template
                    times[name].append((time.perf_counter() - begun) * 1000)
                assert status == 200, (name, status)
    return {name: sorted(found) for name, found in times.items()}


def table(rows: list[int], columns: list[Times]) -> str:
    """Return a table in Markdown."""
    lines = ["| page | " + " | ".join(f"{count:,} files" for count in rows) + " |", "|---|" + "--:|" * len(rows)]
    for name in columns[0]:
        cells = [
            f"{number(statistics.median(c[name]))}, {number(c[name][int(len(c[name]) * 0.95)])}" for c in columns
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
