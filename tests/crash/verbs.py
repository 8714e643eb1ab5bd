"""The verbs that the campaign kills: each verb with the state from which it starts, and its guarantees."""

import json
import os
import random
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

from cafcat.formats import registry
from cafcat.testing.formats import pack
from tests.crash.team import Victim
from tests.crash.world import World
from tests.worlds.archives.log_archives import container
from tests.worlds.archives.written_formats import WRITTEN

__all__ = ["VERBS", "Verb", "available_verbs"]

MODIFIED = 1_795_255_200
SMALL = ("-q", "--target-size", "8kB")
LARGE_BYTES = 5_000_000
"""Larger than a block of a chunk (4 MiB)."""
PRUNE = ("-q", "--grace", "0", "--yes")


class Verb(NamedTuple):
    """A verb of the campaign.

    Attributes:
        prepare: makes the state from an empty catalog, and returns the command.
        shape: queries whose answers after a kill and a second run equal those after a run without a kill.
        is_atomic: the verb has all of its effects or none.
        codes: allowed exit codes of the second run.
        victim: the verb is done by a team, of which this process is killed.
        output: a file that the verb writes.
        needs: a package without which the verb cannot run.
    """

    prepare: Callable[[World], list[str]]
    shape: tuple[str, ...]
    is_atomic: bool = False
    codes: tuple[int, ...] = (0,)
    victim: Victim | None = None
    output: str | None = None
    needs: str | None = None


def available_verbs() -> list[str]:
    """Return the names of the verbs whose packages are installed."""
    return [name for name, verb in VERBS.items() if verb.needs is None or find_spec(verb.needs)]


def write_files(world: World, folder: str, names: str, seed: int) -> None:
    """Write files of 0 to 3 kB. Another seed gives other contents and times."""
    content = random.Random(f"{seed} {names}")
    for name in names:
        path = world.folder / folder / f"{name}.dat"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.randbytes(content.randrange(3000)))
        os.utime(path, (MODIFIED + seed, MODIFIED + seed))


def packed(world: World) -> None:
    """Ingest several chunks, some with dead space."""
    shutil.rmtree(world.folder / "tree", ignore_errors=True)
    write_files(world, "tree", "abcdefghijkl", 1)
    world.cafcat("ingest", *SMALL, "tree")
    write_files(world, "tree", "behm", 2)
    world.cafcat("ingest", *SMALL, "tree")


def ingest(world: World) -> list[str]:
    """Prepare an ingest of new, changed and unchanged files into several chunks."""
    packed(world)
    write_files(world, "tree", "acfmnopqrs", 3)
    return ["ingest", *SMALL, "tree"]


def ingest_with_delete(world: World) -> list[str]:
    """Prepare an ingest of new and changed files that also removes files: of one chunk all, of another one some."""
    packed(world)
    write_files(world, "tree", "fnop", 3)
    for name in "abcdm":
        (world.folder / "tree" / f"{name}.dat").unlink()
    return ["ingest", *SMALL, "--delete", "tree"]


def ingest_as(archive_format: str) -> Callable[[World], list[str]]:
    """Return a function that prepares an ingest into a format.

    Some files are packed in it already; one is large.
    """

    def prepare(world: World) -> list[str]:
        packed(world)
        options = (*SMALL, "--format", archive_format)
        write_files(world, "tree", "fgno", 3)
        world.cafcat("ingest", *options, "tree")
        write_files(world, "tree", "acfmpqrs", 4)
        path = world.folder / "tree" / "large.dat"
        path.write_bytes(random.Random(6).randbytes(LARGE_BYTES))
        os.utime(path, (MODIFIED, MODIFIED))
        return ["ingest", *options, "tree"]

    return prepare


def ingest_by_two(world: World) -> list[str]:
    """Prepare an ingest by two workers. Each gets a file that is large enough for direct writes."""
    ingest(world)
    for name, seed in {"a1": 4, "g1": 5}.items():
        path = world.folder / "tree" / f"{name}.dat"
        path.write_bytes(random.Random(seed).randbytes(LARGE_BYTES))
        os.utime(path, (MODIFIED + seed, MODIFIED + seed))
    return ["ingest", *SMALL, "-j", "2", "tree"]


def recover(world: World) -> list[str]:
    """Prepare a recover of every kind of leftover.

    Each leftover gets a lease of a living writer while the next one is made. Otherwise the next ingest would
    recover it.
    """
    packed(world)
    in_bucket = world.places[0].url.startswith("s3:")
    half = "s3 UploadPart" if in_bucket else "file write"
    unnamed = "s3 CompleteMultipartUpload" if in_bucket else "file link"
    whole = "sql INSERT INTO journal"
    for number, before in enumerate((half, whole, unnamed, whole, half), 3):
        write_files(world, f"dead{number}", "abcnop", number)
        world.killed("ingest", *SMALL, f"dead{number}", before=before)
        world.sql(
            "UPDATE chunks SET lease_owner = 'elsewhere:1:run 1', lease_expires_at = now() + '1h' "
            "WHERE state = 'writing'"
        )
    world.sql("UPDATE chunks SET state = 'abandoned', abandoned_at = now() WHERE id = (SELECT max(id) FROM chunks)")
    world.killed("copy", "-q", "--all", "--to", world.places[1].url, before=unnamed)
    world.cafcat("rm", "-q", *removed_names(world))
    world.killed("prune", *PRUNE, before="s3 DeleteObject" if in_bucket else "file unlink")
    world.killed("backup", "-q", before=half)
    world.sql("UPDATE chunks SET lease_expires_at = now() - interval '1s' WHERE state = 'writing'")
    line = "s3 CreateMultipartUpload" if in_bucket else "file open for writing"
    world.killed("rm", "-q", *removed_names(world), after=["sql INSERT INTO journal"], before=line)
    return ["recover", "-q"]


def removed_names(world: World) -> list[str]:
    """Return the names of all files of one chunk, and of one file of another chunk."""
    rows = world.sql(
        "SELECT file_path FROM file_locations WHERE caf_file_id = (SELECT id FROM chunks WHERE state = 'committed' "
        "ORDER BY live_file_count, id LIMIT 1)"
    )
    names = [row[0] for row in rows]
    other = "SELECT file_path FROM file_locations WHERE file_path <> ALL(%s) ORDER BY file_path LIMIT 1"
    return names + [row[0] for row in world.sql(other, names)]


def rm(world: World) -> list[str]:
    """Prepare a removal. A second store has copies of the chunks."""
    packed(world)
    copied(world)
    return ["rm", "-q", *removed_names(world)]


def undelete(world: World) -> list[str]:
    packed(world)
    copied(world)
    names = removed_names(world)
    world.cafcat("rm", "-q", *names)
    return ["undelete", "-q", *names]


def prune(world: World) -> list[str]:
    """Prepare a prune of two chunks that have copies."""
    packed(world)
    copied(world)
    world.cafcat("rm", "-q", *removed_names(world))
    world.cafcat("rm", "-q", *removed_names(world))
    return ["prune", *PRUNE]


def repack(world: World) -> list[str]:
    packed(world)
    world.cafcat("rm", "-q", *removed_names(world))
    return ["repack", "-q", "--max-unused", "0%", "--target-size", "8kB", "--yes"]


def repack_into_car(world: World) -> list[str]:
    """Prepare a repack of chunks of two other formats into CARs."""
    packed(world)
    write_files(world, "tree", "bcd", 3)
    world.cafcat("ingest", *SMALL, "--format", "chunkio", "tree")
    return ["repack", "-q", "--format", "car", "--target-size", "8kB", "--yes"]


def copied(world: World) -> list[str]:
    command = ["copy", "-q", "--all", "--to", world.places[1].url]
    world.cafcat(*command)
    return command


def copy(world: World) -> list[str]:
    """Prepare a copy of some chunks after a removal, whose journal record the second store needs, too."""
    packed(world)
    world.cafcat("rm", "-q", *removed_names(world))
    return ["copy", "-q", "--all", "--to", world.places[1].url]


def copy_again(world: World) -> list[str]:
    """Prepare the replacement of a damaged copy."""
    packed(world)
    command = copied(world)
    damage(world, 1)
    return command


def migrate(world: World) -> list[str]:
    """Prepare a migration of several chunks, a retired one, and a backup."""
    packed(world)
    world.cafcat("rm", "-q", *removed_names(world))
    world.cafcat("backup", "-q")
    return ["store", "migrate", "-q", *(place.url for place in world.places)]


def prune_migrated(world: World) -> list[str]:
    """Prepare a prune of the copies that a migration left in the old store."""
    world.cafcat(*migrate(world))
    return ["prune", *PRUNE]


def damage(world: World, number: int = 0) -> None:
    """Damage one byte of a file in the first store, or in the copy in the second one, and let verify find it."""
    row = world.sql(
        "SELECT object_key, l.start_byte FROM file_locations AS l JOIN chunks AS c ON c.id = caf_file_id "
        "WHERE c.store = %s AND l.end_byte > l.start_byte ORDER BY l.file_path LIMIT 1",
        world.places[0].url,
    )
    key, start = row[0]
    place = world.places[number]
    data = bytearray(place.objects()[key])
    data[start] ^= 0xFF
    place.write(key, bytes(data))
    world.damaged = frozenset([(place.url, key)])
    world.cafcat("verify", "-q", "--level", "data", code=5)


def repair_from_copy(world: World) -> list[str]:
    packed(world)
    copied(world)
    damage(world)
    return ["repair", "-q", "--from-copy", "--yes"]


def repair_from_source(world: World) -> list[str]:
    packed(world)
    damage(world)
    return ["repair", "-q", "--from-source", "tree", "--yes"]


def write_archive(world: World, archive_format: str, names: str, *, large: bool = False) -> str:
    """Write a third-party archive, and return its path or URL."""
    written = registry.by_name(archive_format)
    content = random.Random(f"{archive_format} {names}")
    files = [(f"{name}.dat", content.randbytes(content.randrange(3000)), MODIFIED * 10**9) for name in names]
    files += [("large.dat", content.randbytes(LARGE_BYTES), None)] if large else []
    return put_outside(world, f"{names}{written.suffix}", pack(written, files)[0])


def put_outside(world: World, key: str, data: bytes) -> str:
    assert world.outside is not None
    world.outside.write(key, data)
    url = world.outside.url
    return f"{url if url.startswith('s3:') else url2pathname(urlsplit(url).path)}/{key}"


def adopt(world: World) -> list[str]:
    """Prepare the adoption of one archive of each format. Some of their paths are those of packed files."""
    packed(world)
    names = ("axy", "bzA", "cBC", "dDE")
    urls = [write_archive(world, kind, letters) for kind, letters in zip(WRITTEN, names, strict=True)]
    logs = container([("app.log", 0, 7), ("db.log", 7, 9)], [("time", 1, 2)])
    urls.append(put_outside(world, "logs.clp", logs))
    return ["adopt", "-q", "--prefix", "tree", "--on-conflict", "replace", *urls]


def ingest_logs(world: World) -> list[str]:
    """Prepare an ingest of log files and other files into several archives, after an earlier one."""
    packed(world)
    shutil.rmtree(world.folder / "logs", ignore_errors=True)
    options = ("-q", "--format", "clp-s", "--timestamp-key", "time", "--target-size", "10kB")
    for names in ("ab", "cdef"):
        if names != "ab":
            world.cafcat("ingest", *options, "logs")
        write_logs(world, names)
    return ["ingest", *options, "logs"]


def write_logs(world: World, names: str) -> None:
    for number, name in enumerate(names):
        path = world.folder / "logs" / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"time": MODIFIED * 1000 + n, "of": name, "n": n * number}) for n in range(100)]
        path.write_text("".join(f"{line}\n" for line in lines))
        os.utime(path, (MODIFIED, MODIFIED))


def export(world: World) -> list[str]:
    """Prepare an export of chunks of several formats to a CAR. The export rewrites the CAR's head at the end."""
    ingest_as("chunkio")(world)
    world.cafcat("ingest", *SMALL, "--format", "databundle", "tree")
    return ["export", "-q", "-o", "out/all.car"]


def export_over_another(world: World) -> list[str]:
    packed(world)
    (world.output_folder / "all.caf").write_bytes(b"older")
    return ["export", "-q", "--overwrite", "-o", "out/all.caf"]


def convert(source: str, output: str) -> Callable[[World], list[str]]:
    """Return a function that prepares a conversion of a third-party archive."""

    def prepare(world: World) -> list[str]:
        return ["convert", "-q", write_archive(world, source, "abcdef", large=True), f"out/{output}"]

    return prepare


def convert_over_another(world: World) -> list[str]:
    (world.output_folder / "new.dbs").write_bytes(b"older")
    return ["convert", "-q", "--overwrite", write_archive(world, "car", "abcdef", large=True), "out/new.dbs"]


def convert_logs(world: World) -> list[str]:
    """Prepare a conversion from clp-s to clp-s, which assembles the archive again from its sections."""
    return ["convert", "-q", put_outside(world, "logs.clp", container([("app.log", 0, 7)])), "out/again.clp"]


def backup(world: World) -> list[str]:
    """Prepare a second backup, which replaces the first."""
    packed(world)
    world.cafcat("backup", "-q")
    return ["backup", "-q", "--keep", "1"]


COUNTS = "SELECT state, count(*), sum(live_file_count), sum(file_count) FROM chunks GROUP BY 1 ORDER BY 1"
NOT_COPIED = (
    "SELECT count(*) FROM chunks AS c WHERE state = 'committed' AND NOT EXISTS "
    "(SELECT FROM chunk_copies AS k WHERE k.chunk_id = c.id AND k.state = 'committed')"
)
BROKEN_COPIES = (
    "SELECT count(*) FROM verifications AS v JOIN chunk_copies AS k ON k.id = v.copy_id "
    "WHERE v.verdict <> 'ok' AND k.state = 'committed'"
)
COPIES = "SELECT state, count(*) FROM chunk_copies GROUP BY 1 ORDER BY 1"
STORES = "SELECT store, state, count(*) FROM chunks GROUP BY 1, 2 ORDER BY 1, 2"
REPAIRED = (
    "SELECT state, sum(live_file_count), count(*) > 0 FROM chunks WHERE state <> 'abandoned' GROUP BY 1 ORDER BY 1"
)
DEAD = "SELECT sum(data_bytes - live_bytes) FROM chunks WHERE state = 'committed'"

FORMATS = "SELECT format, sum(live_file_count) FROM chunks WHERE state = 'committed' GROUP BY 1 ORDER BY 1"

LISTINGS = ("SELECT count(*) FROM listings",)
REMOVED = "SELECT file_path FROM retired_locations WHERE reason = 'removed' ORDER BY 1"
ADOPTED = (
    "SELECT store, object_key, format, adopted_prefix, state, file_count, live_file_count FROM chunks "
    "WHERE adopted_prefix IS NOT NULL ORDER BY 2"
)
LOG_FILES = "SELECT file_name, end_record - first_record, source_bytes FROM ingestion_units ORDER BY 1"
SOME_FAILED, CONFLICT = 3, 1
"""Exit codes of a second run that cannot adopt or write the same archive again."""

VERBS = {
    "ingest": Verb(ingest, LISTINGS),
    "ingest with delete": Verb(ingest_with_delete, (*LISTINGS, REMOVED)),
    "ingest as car": Verb(ingest_as("car"), LISTINGS),
    "ingest as chunkio": Verb(ingest_as("chunkio"), LISTINGS),
    "ingest as databundle": Verb(ingest_as("databundle"), LISTINGS),
    "ingest by two: leader": Verb(ingest_by_two, LISTINGS, victim=Victim(0)),
    "ingest by two: worker 1": Verb(ingest_by_two, LISTINGS, victim=Victim(1)),
    "ingest by two: worker 2": Verb(ingest_by_two, LISTINGS, victim=Victim(2)),
    "ingest by two: all at worker 1": Verb(ingest_by_two, LISTINGS, victim=Victim(1, everybody=True)),
    "ingest by two: all at worker 2": Verb(ingest_by_two, LISTINGS, victim=Victim(2, everybody=True)),
    "ingest by two threads": Verb(ingest_by_two, LISTINGS),
    "ingest as clp-s": Verb(ingest_logs, (*LISTINGS, LOG_FILES), needs="yscope_clp_core"),
    "adopt": Verb(adopt, (ADOPTED, LOG_FILES), codes=(0, SOME_FAILED)),
    "export": Verb(export, (COUNTS,), is_atomic=True, codes=(0, CONFLICT), output="all.car"),
    "export over another": Verb(export_over_another, (COUNTS,), is_atomic=True, output="all.caf"),
    "convert car": Verb(convert("car", "new.caf"), (), codes=(0, CONFLICT), output="new.caf"),
    "convert databundle": Verb(convert("databundle", "new.car"), (), codes=(0, CONFLICT), output="new.car"),
    "convert caf": Verb(convert("caf", "new.cio"), (), codes=(0, CONFLICT), output="new.cio"),
    "convert over another": Verb(convert_over_another, (), output="new.dbs"),
    "convert clp-s": Verb(convert_logs, (), codes=(0, CONFLICT), output="again.clp"),
    "recover": Verb(recover, (COUNTS, COPIES)),
    "rm": Verb(rm, (COUNTS,), is_atomic=True, codes=(0, 3)),
    "undelete": Verb(undelete, (COUNTS,), is_atomic=True, codes=(0, 3)),
    "prune": Verb(prune, (COUNTS, NOT_COPIED)),
    "repack": Verb(repack, (DEAD,)),
    "repack into car": Verb(repack_into_car, (DEAD, FORMATS)),
    "repair from copy": Verb(repair_from_copy, (REPAIRED,)),
    "repair from source": Verb(repair_from_source, (REPAIRED,)),
    "copy": Verb(copy, (COUNTS, NOT_COPIED)),
    "copy in place of a damaged one": Verb(copy_again, (COUNTS, NOT_COPIED, BROKEN_COPIES)),
    "store migrate": Verb(migrate, (COUNTS, STORES, NOT_COPIED)),
    "prune after a migration": Verb(prune_migrated, (COUNTS, NOT_COPIED, STORES)),
    "backup": Verb(backup, ("SELECT count(*) FROM backups WHERE state = 'committed'",)),
}
