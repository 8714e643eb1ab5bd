"""Parsers of archives for the checker. They follow the documented formats and use nothing of cafcat's own code."""

import json
import struct
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgpack

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["KINDS", "Entry", "Unit", "content", "parse", "units"]

KINDS = {".caf": "caf", ".car": "car", ".cio": "chunkio", ".clp": "clp-s", ".dbs": "databundle"}
"""Kinds by suffix of a file."""

METER_EVERY, METER_BYTES = 1 << 16, 16
RECORD_HEADER = struct.Struct("<16sQ8s8s")
CID_BYTES = 36
CLP_HEAD = struct.Struct("<4s4sQQ32sI4s")
CLP_SECTIONS, CLP_RANGES, CLP_NOTED = 1, 3, 202
"""Types of metadata packets."""


@dataclass(frozen=True)
class Entry:
    """A file in an archive. crc32c: None if the archive has no checksum of the file."""

    path: str
    start: int
    end: int
    crc32c: int | None


class Unit(NamedTuple):
    """A log file in an archive of logs, with its records. source_bytes: None if the archive lacks the size."""

    number: int
    file_name: str
    first_record: int
    end_record: int
    source_bytes: int | None


def parse(kind: str, data: bytes) -> tuple[int, int, list[Entry]]:
    """Return index start, index end and entries. Raises ValueError for bytes that are not such an archive."""
    return _PARSERS[kind](data)


def units(data: bytes) -> list[Unit]:
    """Return the log files of a clp-s archive."""
    packets = _clp_packets(data)[1]
    ranges = msgpack.unpackb(packets.get(CLP_RANGES, b"\x90"))
    noted = msgpack.unpackb(packets[CLP_NOTED])["sources"] if CLP_NOTED in packets else [(None, None)] * len(ranges)
    return [
        Unit(number, found["f"].get("_filename", ""), found["s"], found["e"], size)
        for number, (found, (size, _)) in enumerate(zip(ranges, noted, strict=True))
    ]


def content(kind: str, data: bytes, start: int, end: int, decoding: str | None) -> bytes:
    """Return the content of a file from the bytes `[start, end)` of an archive, decoded if it has a decoding."""
    if decoding is None:
        return data[start:end]
    if (kind, decoding) == ("chunkio", "pieces"):
        payload = _without_meters(data, start, end)
        return b"".join(part for _, part in _records(payload))
    if (kind, decoding) == ("car", "sections"):
        return b"".join(_leaves(data, start, end))
    if kind == "databundle" and decoding.startswith("deflate "):
        return b"".join(_inflated(data, start, end, *decoding.split()[1:]))
    raise ValueError(f"{kind} has no decoding {decoding}")


def _index(text: bytes) -> list[Entry]:
    pairs: dict[str, Any] = dict(json.loads(text, object_pairs_hook=list))
    entries = []
    for path, members in pairs["files"]:
        fields = dict(members)
        entries.append(Entry(path, fields["start_byte"], fields["end_byte"], fields["crc32c"]))
    if len({entry.path for entry in entries}) != len(entries):
        raise ValueError("two files have the same name")
    return entries


def _caf(data: bytes) -> tuple[int, int, list[Entry]]:
    end = len(data) - 4
    start = end - int.from_bytes(data[end:], "little")
    if end < 0 or start < 0:
        raise ValueError("not a CAF")
    return start, end, _index(data[start:end])


def _car(data: bytes) -> tuple[int, int, list[Entry]]:
    """Parse a CARv2. A CAF index, its footer and a trailer of 32 bytes precede the CAR's own index."""
    if data[:11] != b"\x0a\xa1\x67version\x02":
        raise ValueError("not a CARv2")
    data_start, data_bytes, index_start = struct.unpack("<QQQ", data[27:51])
    start = data_start + data_bytes
    magic, manifest_start, size = struct.unpack("<16sQQ", data[index_start - 32 : index_start])
    if (magic, manifest_start, size) != (b"\0cafcat manifest", start, len(data)):
        raise ValueError("no manifest")
    text_end = index_start - 36
    if int.from_bytes(data[text_end : text_end + 4], "little") != text_end - start:
        raise ValueError("the manifest has another size")
    return start, len(data), _index(data[start:text_end])


def _leaves(data: bytes, start: int, end: int) -> list[bytes]:
    found = []
    while start < end:
        size = shift = 0
        while True:
            byte = data[start]
            start += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        found.append(data[start + CID_BYTES : start + size])
        start += size
    return found


def _chunkio(data: bytes) -> tuple[int, int, list[Entry]]:
    """Parse a ChunkIO file. The last record is an end mark that contains the position of the index."""
    payload = _without_meters(data, 0, len(data))
    user_data, size, *_ = RECORD_HEADER.unpack(payload[-40:])
    if user_data[:8] != b"cafcat1E" or size:
        raise ValueError("no end mark")
    start = int.from_bytes(user_data[8:], "little")
    records = list(_records(_without_meters(data, start, len(data))))
    if any(user_data[:8] != b"cafcat1I" for user_data, _ in records[:-1]):
        raise ValueError("the index has other records")
    before = len(payload) - RECORD_HEADER.size
    end = before + METER_BYTES * -(-before // (METER_EVERY - METER_BYTES))
    return start, end, _index(b"".join(part for _, part in records[:-1]))


def _without_meters(data: bytes, start: int, end: int) -> bytes:
    parts = []
    while start < end:
        begin = start - start % METER_EVERY
        parts.append(data[max(start, begin + METER_BYTES) : min(end, begin + METER_EVERY)])
        start = begin + METER_EVERY
    return b"".join(parts)


def _records(payload: bytes) -> list[tuple[bytes, bytes]]:
    """Return user data and content of each record."""
    found, at = [], 0
    while at < len(payload):
        user_data, size, *_ = RECORD_HEADER.unpack_from(payload, at)
        at += RECORD_HEADER.size
        found.append((user_data, payload[at : at + size]))
        at += size
    return found


def _databundle(data: bytes) -> tuple[int, int, list[Entry]]:
    """Parse a DataBundle shard. The last 26 bytes have the position of the table.

    The table is a protobuf message. Each field 1 is a row with a key and a value.
    """
    end = len(data) - 26
    tag, start, data_start, _, word = struct.unpack("<2sQII8s", data[end:])
    if (tag, data_start, word, data[:4]) != (b"\x7a\x18", 4096, b"daBSmeta", b"daBS"):
        raise ValueError("no trailer")
    entries = []
    for _, row in _fields(data[start:end]):
        key, value = (found for _, found in _fields(row))
        if key[0] == 2:
            of = dict(_fields(value))
            file = dict(_fields(dict(_fields(of[6]))[2]))
            path = key[1:].replace(b"\0\0", b"").decode()
            entries.append(Entry(path, file[2], file[3], of.get(5, 0)))
    return start, end, entries


def _clp(data: bytes) -> tuple[int, int, list[Entry]]:
    """Parse a clp-s archive. It has no index behind its sections; checksums are in a packet of cafcat's own."""
    start, packets = _clp_packets(data)
    sections = msgpack.unpackb(packets[CLP_SECTIONS])["files"]
    starts = [start + section["o"] for section in sections]
    ends = [*starts[1:], len(data)]
    noted = msgpack.unpackb(packets[CLP_NOTED])["crc32c"] if CLP_NOTED in packets else [None] * len(sections)
    entries = [
        Entry(section["n"], first, end, checksum)
        for section, first, end, checksum in zip(sections, starts, ends, noted, strict=True)
    ]
    return len(data), len(data), entries


def _clp_packets(data: bytes) -> tuple[int, dict[int, bytes]]:
    """Return the start of the sections, and the contents of the packets by type."""
    magic, _, _, size, _, metadata_bytes, _ = CLP_HEAD.unpack(data[: CLP_HEAD.size])
    if magic != b"\xfd\x2f\xc5\x30" or size != len(data):
        raise ValueError("not an archive of logs, or an incomplete one")
    start = CLP_HEAD.size + metadata_bytes
    metadata = zstd.decompress(data[CLP_HEAD.size : start])
    packets, at = {}, 1
    for _ in range(metadata[0]):
        kind, packet_bytes = struct.unpack_from("<BI", metadata, at)
        packets[kind] = metadata[at + 5 : at + 5 + packet_bytes]
        at += 5 + packet_bytes
    return start, packets


def _fields(message: bytes) -> list[tuple[int, Any]]:
    """Return number and value of each field of a protobuf message with varints and length-delimited values."""
    found: list[tuple[int, Any]] = []
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        number, kind = divmod(varint(), 8)
        value: Any = varint()
        if kind == 2:
            value, at = message[at : at + value], at + value
        found.append((number, value))
    return found


def _inflated(data: bytes, start: int, end: int, offset: str, runs: str = "") -> list[bytes]:
    """Return the inflated pieces. Only the first piece can begin inside a record, without a head of zlib."""
    zeros = {int(first): int(count) for first, count in (run.split("+") for run in runs.split(",") if run)}
    parts: list[bytes] = []
    number, raw = 0, offset != "0"
    while start < end or number in zeros:
        if number in zeros:
            parts.append(bytes(zeros[number] << 18))
            number += zeros[number]
            continue
        inflater = zlib.decompressobj(-15 if raw else 15)
        try:
            parts.append(inflater.decompress(data[start:end]))
        except zlib.error as error:
            raise ValueError(str(error)) from error
        at = end - len(inflater.unused_data) + 4 * (raw and inflater.eof)
        start, number, raw = at + -at % 4096, number + 1, False
    return parts


_PARSERS: dict[str, Callable[[bytes], tuple[int, int, list[Entry]]]] = {
    "caf": _caf,
    "car": _car,
    "chunkio": _chunkio,
    "clp-s": _clp,
    "databundle": _databundle,
}
