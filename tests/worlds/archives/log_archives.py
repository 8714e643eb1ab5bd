"""Archives of logs: containers with any log files and times, as clp-s writes them; and the program clp-s."""

import json
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgpack
import pytest

from cafcat.errors import Unsupported
from cafcat.formats.clp.frames import compress_frame
from cafcat.formats.clp.header import Header
from cafcat.formats.clp.metadata import RANGE_INDEX, TIMESTAMPS, Packet
from cafcat.formats.clp.packing import pack_head
from cafcat.formats.clp.program import program_path
from tests.worlds.servers.services import missing_service

__all__ = [
    "SECTIONS",
    "Range",
    "clp_program",
    "compressed_logs",
    "container",
    "log_lines",
    "searched_by_hand",
    "write_container",
]

SECTIONS = {
    "/schema_tree": compress_frame(b"tree"),
    "/schema_ids": compress_frame(b""),
    "/table_metadata": compress_frame(b"tables" * 100),
    "/var.dict": bytes(8),
    "/log.dict": (3).to_bytes(8, "little") + compress_frame(b"three"),
    "/array.dict": bytes(8),
    "/0": compress_frame(b"one") + compress_frame(b"two"),
}
Range = tuple[str | None, int, int]


def container(ranges: Sequence[Range] = (), times: Sequence[tuple[str, int | float, int | float]] = ()) -> bytes:
    """Return a whole clp-s archive. ranges: log file, first and end record. times: key, begin, end."""
    packets = [Packet(0, msgpack.packb({"num_segments": 1})), _timestamps(times)]
    items = [{"s": start, "e": end, "f": _fields(name)} for name, start, end in ranges]
    packets += [Packet(RANGE_INDEX, msgpack.packb(items))] if items else []
    sizes = [(name, len(content)) for name, content in SECTIONS.items()]
    return pack_head(Header((0, 5, 0), 1000, 0, 0), packets, sizes) + b"".join(SECTIONS.values())


def _fields(name: str | None) -> dict[str, object]:
    return {"_file_split_number": 0} | ({} if name is None else {"_filename": name})


def _timestamps(times: Sequence[tuple[str, int | float, int | float]]) -> Packet:
    parts = [struct.pack("<Q", len(times))]
    for key, begin, end in times:
        kind = 2 if isinstance(begin, float) else 1
        name = key.encode()
        parts.append(struct.pack("<Q", len(name)) + name + struct.pack("<QiQ", 1, 3, kind))
        parts.append(struct.pack("<2d" if kind == 2 else "<2q", begin, end))
    return Packet(TIMESTAMPS, b"".join(parts) + struct.pack("<Q", 0))


def write_container(
    path: Path, ranges: Sequence[Range] = (), times: Sequence[tuple[str, int | float, int | float]] = ()
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(container(ranges, times))
    return path


@pytest.fixture(scope="session")
def clp_program() -> Path:
    """Return the path of the program clp-s."""
    try:
        return program_path()
    except Unsupported as error:
        missing_service(str(error))


def log_lines(records: Sequence[Mapping[str, Any]]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def compressed_logs(clp_program: Path, folder: Path, logs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Path:
    """Let clp-s make an archive of these log files, and return its path. logs: records by name."""
    for name, records in logs.items():
        path = folder / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(log_lines(records))
    command = [clp_program, "c", "--single-file-archive", "--timestamp-key", "timestamp", folder / "out", *logs]
    subprocess.run(command, cwd=folder / "in", check=True, capture_output=True)
    [archive] = (folder / "out").iterdir()
    return archive


def searched_by_hand(clp_program: Path, archives: Sequence[Path], *arguments: str) -> list[bytes]:
    """Return the records that clp-s itself finds in the archives, sorted."""
    found: list[bytes] = []
    for archive in archives:
        command = [clp_program, "s", archive, *arguments]
        found += subprocess.run(command, check=True, capture_output=True).stdout.splitlines()
    return sorted(found)
