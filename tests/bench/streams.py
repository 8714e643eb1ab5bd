"""32 streams of 1 GB at the same time from `cafcat serve`, against nginx. All bytes are in the page cache."""

import random
import selectors
import socket
from collections.abc import Iterator, Sequence

from tests.bench.bench import Bench
from tests.bench.data import MIB, DataSet, read_all
from tests.bench.programs import find, provide_programs
from tests.bench.servers import Served, cafcat_server, nginx
from tests.bench.table import Row, at_least, figure, pair_ratios
from tests.bench.timing import Way, in_turn, timed

__all__ = ["ROWS"]

STREAMS = 32
FILES = 4
"""Fewer files than streams, so that the files and their chunk fit in memory."""
FILE_BYTES = 1_000_000_000
_HEAD_BYTES = 4096


def streams(bench: Bench) -> Iterator[Row]:
    """The client is one process, which reads all streams, and uses one of the processors."""
    provide_programs(bench, "nginx")
    find("nginx")
    data = _files(bench)
    home = bench.home("streams")
    bench.ingest(home, data)
    paths = [f"{data.name}/{path.relative_to(data.folder)}" for path in data.paths()]
    wanted = [paths[number % FILES] for number in range(STREAMS)]
    with cafcat_server(home) as ours, nginx(bench.folder / "nginx-streams", bench.folder) as theirs:
        read_all(data.paths())
        read_all(iter(home.chunks()))
        cpu: dict[str, list[float]] = {"cafcat": [], "nginx": []}
        sides = {"cafcat": (ours.http, "/files/"), "nginx": (theirs, "/")}
        ways: dict[str, Way] = {
            name: lambda name=name, side=side: _measured(cpu[name], *side, wanted, data)  # type: ignore[misc]
            for name, side in sides.items()
        }
        measured = in_turn(ways, bench.rounds)
    data.remove()
    home.empty()
    yield _row(data, measured, cpu)


ROWS = (streams,)


def _files(bench: Bench) -> DataSet:
    size_bytes = max(MIB, round(FILE_BYTES * min(1, bench.scale)))
    bench.say(f"making {FILES} files of {size_bytes / 1e6:,.0f} MB")
    place = bench.folder / "streams"
    (place / "00000").mkdir(parents=True)
    noise = random.Random(20260105).randbytes(MIB)
    for number in range(FILES):
        with (place / "00000" / f"{number}.dat").open("wb") as file:
            for start in range(0, size_bytes, MIB):
                file.write(noise[: size_bytes - start])
    return DataSet(place, FILES, FILES * size_bytes)


def _measured(cpu: list[float], served: Served, before: str, paths: Sequence[str], data: DataSet) -> float:
    """Return the seconds of all streams, and append the CPU seconds of the server to a list."""
    begun = sum(served.cpu_seconds())
    seconds = timed(
        lambda: _download(served.host, [before + path for path in paths], data.size_bytes // data.files)
    )
    cpu.append(sum(served.cpu_seconds()) - begun)
    return seconds


def _download(host: str, targets: Sequence[str], size_bytes: int) -> None:
    """Read all files at the same time. Raises AssertionError if one of them does not arrive completely."""
    name, _, port = host.partition(":")
    received: dict[socket.socket, int] = {}
    buffer = memoryview(bytearray(MIB))
    with selectors.DefaultSelector() as waiting:
        for target in targets:
            stream = socket.create_connection((name, int(port)))
            stream.sendall(f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            stream.setblocking(False)
            waiting.register(stream, selectors.EVENT_READ)
            received[stream] = 0
        while waiting.get_map():
            for key, _ in waiting.select():
                stream = key.fileobj  # type: ignore[assignment]
                count = stream.recv_into(buffer)
                received[stream] += count
                if not count:
                    waiting.unregister(stream)
                    stream.close()
    assert all(size_bytes < count < size_bytes + _HEAD_BYTES for count in received.values()), received


def _row(data: DataSet, measured: dict[str, list[float]], cpu: dict[str, list[float]]) -> Row:
    total = STREAMS * data.size_bytes / data.files
    rates = {name: [total / seconds / 1e6 for seconds in values] for name, values in measured.items()}
    spent = {name: [1e9 * seconds / total for seconds in values[1:]] for name, values in cpu.items()}
    absolute = "; ".join(
        f"{name} {figure(rates[name], 'MB/s')}, {figure(spent[name], 'CPU s of the server per GB')}"
        for name in measured
    )
    work = f"{STREAMS} streams of {data.size_bytes / data.files / 1e6:,.0f} MB by HTTP, bytes a second"
    return Row("streams", work, "nginx", at_least(0.7), pair_ratios(rates["cafcat"], rates["nginx"]), absolute)
