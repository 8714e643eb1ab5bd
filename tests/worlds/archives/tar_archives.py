"""Tar archives made by tarfile, by GNU tar or block by block, and the files that a source reads from them."""

import io
import os
import random
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from cafcat.model import FileProblem, ProblemKind, SourceFile
from cafcat.sources.tar.file import TarFileSource
from cafcat.sources.tar.stream import TarStreamSource
from tests.worlds.servers.services import missing_service

MIB = 1 << 20
TIME = 1_700_000_000
FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
Taken = list[tuple[str, Any]]


def tar(*members: tuple[str, bytes, dict[str, Any]] | tuple[str, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    """Return an archive of these names, contents and fields of TarInfo."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for name, data, *fields in members:
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), TIME
            for field, value in (fields[0] if fields else {}).items():
                setattr(info, field, value)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def link(name: str, target: str, kind: bytes = tarfile.LNKTYPE) -> tuple[str, bytes, dict[str, Any]]:
    return name, b"", {"type": kind, "linkname": target}


def header(name: str, size: int, kind: bytes, **fields: Any) -> bytes:
    """Return one header block. size: any number, also a wrong one."""
    info = tarfile.TarInfo(name)
    info.size, info.type, info.mtime = size, kind, TIME
    for field, value in fields.items():
        setattr(info, field, value)
    return info.tobuf(tarfile.GNU_FORMAT)


def resummed(block: bytes) -> bytes:
    """Return the header block with a right checksum."""
    total = 256 + sum(block[:148]) + sum(block[156:512])
    return block[:148] + b"%06o\0 " % total + block[156:]


def extended(records: bytes, kind: bytes = b"x") -> bytes:
    return header("pax", len(records), kind) + records + bytes(-len(records) % 512)


def record(key: bytes, value: bytes) -> bytes:
    body = b" " + key + b"=" + value + b"\n"
    length = len(body)
    while length != len(str(length)) + len(body):
        length = len(str(length)) + len(body)
    return str(length).encode() + body


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


END = bytes(1024)
ONE_FILE = header("a", 1, b"0") + padded(b"A")
PLAIN = tar(("a", b"A"), ("large", random.Random(1).randbytes(3 * MIB)), ("b", b"B" * 1000))


def from_file(data: bytes, **options: Any) -> TarFileSource:
    Path("x.tar").write_bytes(data)
    return TarFileSource("x.tar", **options)


def from_stream(data: bytes, **options: Any) -> TarStreamSource:
    return TarStreamSource(io.BytesIO(data), **options)


def taken(source: TarFileSource | TarStreamSource) -> Taken:
    """Read all files in order. Return each path with its content, or with the kind of its problem."""
    found: Taken = []
    for item in source.files():
        if isinstance(item, FileProblem):
            found.append((item.path, item.kind.value))
            continue
        with source.open(item) as opened:
            content = opened.read()
            assert opened.size_bytes == item.size_bytes == len(content)
            assert opened.modified_ns == item.modified_ns
            assert opened.etag is None
        found.append((item.path, content))
    return found


def problems(source: TarFileSource | TarStreamSource) -> list[FileProblem]:
    return [item for item in source.files() if isinstance(item, FileProblem)]


def the_end(source: TarFileSource | TarStreamSource) -> str:
    """Return the message of the only problem, which is the last item and concerns the whole archive."""
    *files, problem = source.files()
    assert all(isinstance(file, SourceFile) for file in files), files
    assert isinstance(problem, FileProblem)
    assert (problem.path, problem.kind) == (source.name, ProblemKind.CORRUPT)
    return problem.message


def system_tar(*arguments: str) -> None:
    """Run GNU tar in the current folder."""
    try:
        version = subprocess.run(["tar", "--version"], capture_output=True, check=True).stdout
    except FileNotFoundError:
        version = b""
    if b"GNU tar" not in version:
        missing_service("GNU tar")
    subprocess.run(["tar", *arguments], check=True, capture_output=True, env={**os.environ, "LC_ALL": "C"})
