"""The whole files that are damaged: archives by cafcat and the original programs, and other input of cafcat."""

import gzip
import io
import json
import tarfile
from functools import cache
from random import Random
from typing import NamedTuple

from cafcat.formats.caf.format import CAF
from cafcat.operations.backup.tar import HEAD_NAME, MANIFEST_NAME, TarWriter
from cafcat.progress import Progress
from cafcat.testing.formats import CONTENTS, ODD_NAMES, ListSink, pack
from tests.fuzz.formats import car_files, chunkio_files, clp_archives, databundle_chunks
from tests.fuzz.mutations import footed, sealed
from tests.worlds.archives.vector_files import VECTORS

__all__ = ["KINDS", "Seed", "seeds_of"]

MODIFIED = 1_795_255_200_123_456_789


class Seed(NamedTuple):
    """A whole file. weight: how often it is damaged, relative to the others."""

    name: str
    data: bytes
    weight: int = 10


@cache
def seeds_of(kind: str) -> tuple[Seed, ...]:
    """Return the seeds of a kind, which are equal in all processes that have the same files."""
    return tuple(KINDS[kind]())


def _archives() -> list[Seed]:
    return [*_own_archives(), *_original_archives()]


def _own_archives() -> list[Seed]:
    random = Random(4)
    small = [(f"folder/file-{n:03}", random.randbytes(random.randrange(40)), MODIFIED + n) for n in range(12)]
    many = [(f"some/folder/of/files/file{n:06}.dat", random.randbytes(4), MODIFIED - n) for n in range(400)]
    odd = [(name, CONTENTS[n % 3], None if n % 2 else n - 9) for n, name in enumerate(ODD_NAMES)]
    window = [(f"{n}/{'n' * 1900}", b"", n) for n in range(700)]
    return [
        Seed("empty", pack(CAF, [])[0]),
        Seed("one", pack(CAF, [("a", b"hello", None)])[0], 20),
        Seed("small", pack(CAF, small)[0], 40),
        Seed("odd names", pack(CAF, odd)[0], 20),
        Seed("contents", pack(CAF, [(str(n), content, n) for n, content in enumerate(CONTENTS)])[0], 5),
        Seed("many", pack(CAF, many)[0], 5),
        Seed("more than a window", pack(CAF, window)[0], 1),
        Seed("pretty", _pretty(pack(CAF, small)[0]), 20),
        Seed("other members", _with_other_members(pack(CAF, small)[0]), 20),
    ]


def _pretty(archive: bytes) -> bytes:
    """Return an archive with an index as other programs may write it, which takes the reader's slow path."""
    files, index = _parts(archive)
    return sealed(files, json.dumps(json.loads(index), indent=2).encode())


def _with_other_members(archive: bytes) -> bytes:
    files, index = _parts(archive)
    document = json.loads(index)
    for n, members in enumerate(document["files"].values()):
        members["mode"] = [None, "0644", 420, {"owner": {"name": "é", "ids": [1, -2.5e3]}}][n % 4]
    return sealed(files, json.dumps({"made_by": "another", **document, "files_total": 12}).encode())


def _parts(archive: bytes) -> tuple[bytes, bytes]:
    end = len(archive) - 4
    start = end - int.from_bytes(archive[end:], "little")
    return archive[:start], archive[start:end]


def _original_archives() -> list[Seed]:
    archives = [(path.name, path.read_bytes()) for path in sorted((VECTORS / "caf").glob("*.caf"))]
    return [Seed(name, data, 1 if len(data) > 100_000 else 10) for name, data in archives]


CHUNK = {
    "uuid": "2f1c7c0e-5b7e-4d0f-9d55-0a4d3f7f7b11",
    "format": "caf",
    "object_key": "2f1c7c0e-5b7e-4d0f-9d55-0a4d3f7f7b11.caf",
    "size_bytes": 5000,
    "data_bytes": 4000,
    "index_start_byte": 4000,
    "index_end_byte": 4996,
    "file_count": 12,
    "crc64nvme": "AAAAAAAAAAA=",
    "index_crc32c": 12345,
    "begun_at": "2026-11-21T10:00:00.000000Z",
}


def _journals() -> list[Seed]:
    names = sorted((*ODD_NAMES, *(f"folder/{n}" for n in range(9))), key=str.encode)
    files = [{"path": name, "chunk": CHUNK["uuid"], "start_byte": n} for n, name in enumerate(names)]
    many = [{"path": f"{n:08}", "chunk": CHUNK["uuid"], "start_byte": n} for n in range(12_000)]
    return [
        Seed("commit", _journal("commit", [], {"chunk": CHUNK}), 40),
        Seed(
            "commit of before",
            _journal("commit", [], {"chunk": {**CHUNK, "crc64nvme": None, "index_crc32c": None}}),
        ),
        Seed("commit, some skipped", _journal("commit", files[:3], {"chunk": CHUNK}), 20),
        Seed("move", _journal("move", files[:1], {"chunk": CHUNK})),
        Seed("remove", _journal("remove", files, {}), 20),
        Seed("restore", _journal("restore", files[4:9], {}), 20),
        Seed("remove, more than is kept", _journal("remove", many, {}), 1),
    ]


def _journal(kind: str, files: list[dict[str, object]], more: dict[str, object]) -> bytes:
    head = {"cafcat_journal": 1, "sequence": 7, "kind": kind, "happened_at": "2026-11-21T10:00:00.000000Z", **more}
    lines = (json.dumps(line, ensure_ascii=False, separators=(",", ":")) for line in (head, *files))
    return footed("".join(f"{line}\n" for line in lines).encode())


def _backups() -> list[Seed]:
    sink = ListSink()
    writer = TarWriter(sink, MODIFIED // 10**9)
    writer.add_document(
        HEAD_NAME, {"cafcat_backup": 1, "journal_id": 7, "tables": {"chunks": ["id"], "journal": []}}
    )
    writer.add_rows("chunks", (b"%d\tcaf\t\\N\n" % n for n in range(500)), Progress())
    writer.add_rows("journal", (b"x" * n + b"\n" for n in range(100)), Progress())
    writer.add_document(MANIFEST_NAME, {"members": [member._asdict() for member in writer.members]})
    writer.finish()
    return [Seed("backup", sink.data)]


COLUMNS = ("Bucket", "Key", "Size", "LastModifiedDate", "ETag", "IsLatest", "IsDeleteMarker")


def _inventories() -> list[Seed]:
    rows = [
        (
            "bucket",
            f"folder/file+{n}%C3%A9",
            str(n),
            f"2026-11-{n + 1:02}T10:00:00.000Z",
            f"{n:032x}",
            "true",
            "false",
        )
        for n in range(20)
    ]
    text = "".join(",".join(f'"{field}"' for field in row) + "\n" for row in (COLUMNS, *rows)).encode()
    return [Seed("rows", text, 20), Seed("gzip", gzip.compress(text, mtime=0))]


def _manifests() -> list[Seed]:
    document = {
        "sourceBucket": "bucket",
        "destinationBucket": "arn:aws:s3:::bucket",
        "version": "2016-11-30",
        "creationTimestamp": "1795255200000",
        "fileFormat": "CSV",
        "fileSchema": ", ".join(COLUMNS),
        "files": [{"key": "inventory/data.csv", "size": 100, "MD5checksum": "0" * 32}],
    }
    return [Seed("compact", json.dumps(document).encode()), Seed("pretty", json.dumps(document, indent=1).encode())]


def _tars() -> list[Seed]:
    whole = [_tar(form) for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)]
    return [Seed(f"tar {n}", data, 20) for n, data in enumerate(whole)] + [
        Seed("gzip", gzip.compress(whole[2], mtime=0))
    ]


def _tar(form: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for n, name in enumerate(("a", "folder/b", "n" * 90, "p" * 90 + "/" + "q" * 90, "é")):
            member = tarfile.TarInfo(name)
            member.size, member.mtime = n * 200, 1_700_000_000 + n
            archive.addfile(member, io.BytesIO(bytes([n]) * member.size))
        linked = tarfile.TarInfo("link")
        linked.type, linked.linkname = tarfile.LNKTYPE, "folder/b"
        archive.addfile(linked)
    return buffer.getvalue()


def _cars() -> list[Seed]:
    return [Seed(name, data) for name, data in car_files()]


def _chunkio() -> list[Seed]:
    return [Seed(name, data) for name, data in chunkio_files()]


def _clp() -> list[Seed]:
    return [Seed(name, data) for name, data in clp_archives()]


def _databundle() -> list[Seed]:
    return [Seed(name, data) for name, data in databundle_chunks()]


KINDS = {
    "caf": _archives,
    "index": _archives,
    "journal": _journals,
    "backup": _backups,
    "inventory": _inventories,
    "manifest": _manifests,
    "tar": _tars,
    "car": _cars,
    "chunkio": _chunkio,
    "clp": _clp,
    "databundle": _databundle,
}
