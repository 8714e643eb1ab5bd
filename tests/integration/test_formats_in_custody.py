"""Chunks of every format: read, verified, recovered, rebuilt, repaired, repacked, copied."""

import os
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import cafcat
from cafcat.catalog.chunks.verification import CheckTarget, TargetKey, VerifyScope
from cafcat.errors import Corrupt, InvalidInput, Unsupported
from cafcat.formats import registry
from cafcat.formats.chunkio.metering import FILE_HEADER
from cafcat.model import Location, OnConflict, ProblemKind, Verdict, VerifyLevel
from cafcat.operations.index_section import IndexSection
from cafcat.operations.verify.chunk_check import check_target
from cafcat.progress import Progress
from cafcat.support.checksums import crc32c
from cafcat.writing.chunk import OpenChunk
from tests.worlds.archives.damage import flip
from tests.worlds.archives.written_formats import TREE, WRITTEN, byte_of, make_tree, same_tree
from tests.worlds.catalog_world import MODIFIED, Opener, begin, sql, state_of
from tests.worlds.listeners import Following, follow
from tests.worlds.places import Bucket, Folder, Place
from tests.worlds.rebuild_world import World, leave_whole, local, world
from tests.worlds.recover_world import chunk_objects, counted, die_before_commit, die_half_way, end_leases, states

__all__ = ["local", "world"]

pytestmark = pytest.mark.covering

NEXT = dict(zip(WRITTEN, [*WRITTEN[1:], WRITTEN[0]], strict=True))
OTHERS = [
    pytest.param(first, second, marks=[] if NEXT[first] == second else pytest.mark.slow)
    for first in WRITTEN
    for second in WRITTEN
    if first != second
]
"""Pairs of formats. `make test` runs those in which each format is the first once and the second once."""
TARGET_BYTES = 3_000_000
"""Target size of a chunk: the tree needs several chunks, and its largest file has one of its own."""


@pytest.fixture(params=WRITTEN)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which has TREE."""
    monkeypatch.chdir(tmp_path)
    make_tree(tmp_path)
    return tmp_path


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


def ingest(repository: cafcat.Repository, name: str, **options: Any) -> None:
    report = follow(repository, options).ingest(["tree"], format=name, target_size=TARGET_BYTES, **options)
    assert (report.files_added, report.files_failed) == (len(TREE), 0)
    assert report.bytes_added == sum(map(len, TREE.values()))
    assert report.chunks_committed >= 3


@pytest.fixture
def packed(local_repository: cafcat.Repository, tree: Path, name: str) -> cafcat.Repository:
    """TREE in a store in a folder, in chunks of the format."""
    ingest(local_repository, name)
    return local_repository


@pytest.fixture
def local_repository(open_at: Opener, folder: Folder) -> cafcat.Repository:
    return open_at(folder)


def assert_sound(repository: cafcat.Repository, files: dict[str, bytes] = TREE) -> None:
    """Check that the catalog agrees with itself and with the objects, and that all files are readable."""
    assert repository.session.catalog.reports.findings() == []
    report = repository.verify(level="data", restart=True)
    assert (report.damaged, report.missing, report.unreadable, report.gone) == (0, 0, 0, 0)
    assert report.ok > 0
    assert {location.path for location in repository.list()} == set(files)
    assert {path: repository.read(path) for path in files} == files


def formats_of(repository: cafcat.Repository) -> set[str]:
    """Return the formats of the committed chunks."""
    return {row[0] for row in sql(repository, "SELECT DISTINCT format FROM chunks WHERE state = 'committed'")}


def rows(repository: cafcat.Repository) -> list[tuple[Any, ...]]:
    """Return the rows of files, without their locations."""
    size = "coalesce(content_bytes, end_byte - start_byte)"
    return sql(
        repository, f"SELECT file_path, {size}, crc32c, modified_at, source_etag FROM file_locations ORDER BY 1"
    )


def object_of(repository: cafcat.Repository, location: Location) -> Path:
    return Path(repository.object_of(location))


# Reading


def test_every_file_is_read_in_every_way(open_at: Opener, place: Place, tree: Path, name: str) -> None:
    repository = open_at(place)
    ingest(repository, name)
    archive_format = registry.by_name(name)
    assert all(key.endswith(archive_format.suffix) for key in chunk_objects(place))
    assert_sound(repository)
    assert dict(repository.read_many(TREE)) == TREE
    for path, content in TREE.items():
        assert b"".join(repository.stream(path)) == content
        location = repository.locate(path)
        assert (location.format, location.size_bytes, location.crc32c) == (name, len(content), crc32c(content))
        assert (location.content_bytes is None) == (location.decoding is None)
        repository.get(path, tree / "got", overwrite=True)
        assert (tree / "got").read_bytes() == content
    report = repository.extract("", tree / "out")
    assert (report.files, report.files_failed) == (len(TREE), 0)
    assert same_tree(tree / "tree", tree / "out" / "tree")


def test_parts_of_files(packed: cafcat.Repository, tree: Path) -> None:
    for path, content in TREE.items():
        if len(content) > 60_000:
            check_parts(packed, tree / "part", path, content)


def check_parts(packed: cafcat.Repository, output: Path, path: str, content: bytes) -> None:
    """Check that every way of reading gives the same parts of a file."""
    size = len(content)
    for start, end in [(0, 1), (size // 2, size // 2 + 70_000), (-5, None), (size - 1, None), (7, 10**12), (3, 3)]:
        assert packed.read(path, start, end) == content[start:end]
        assert b"".join(packed.stream(path, start, end)) == content[start:end]
        packed.get(path, output, start, end, overwrite=True)
        assert output.read_bytes() == content[start:end]
    assert dict(packed.read_many([path], 60_000)) == {path: content[60_000:]}
    with pytest.raises(InvalidInput):
        packed.read(path, size)


def test_unchanged_tree_is_skipped(packed: cafcat.Repository, tree: Path, name: str) -> None:
    report = packed.ingest(["tree"], format=name)
    assert (report.files_unchanged, report.chunks_committed) == (len(TREE), 0)
    for other in WRITTEN:
        assert packed.ingest(["tree"], format=other).files_unchanged == len(TREE)


def test_several_processes_pack(local_repository: cafcat.Repository, tree: Path, name: str) -> None:
    ingest(local_repository, name, jobs=2)
    assert formats_of(local_repository) == {name}
    assert_sound(local_repository)


@pytest.mark.slow
def test_no_url_is_signed_for_files_with_a_decoding(open_at: Opener, bucket: Bucket, tree: Path, name: str) -> None:
    repository = open_at(bucket)
    ingest(repository, name)
    for path in ("tree/small/040", "tree/large"):
        location = repository.locate(path)
        if location.decoding is None:
            assert repository.signed_url(location, 60).start_byte == location.start_byte
        else:
            with pytest.raises(InvalidInput, match="has to be decoded"):
                repository.signed_url(location, 60)


@pytest.mark.parametrize("count", [2000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_thousands_of_files_are_read_back(
    local_repository: cafcat.Repository, tmp_path: Path, name: str, count: int
) -> None:
    """The tree has nested folders, and files of up to some kilobytes."""
    chance = random.Random(10)
    for number in range(count):
        file = tmp_path / "tree" / f"{number % 7}" / f"f{number % 100:02}" / f"{number:05}"
        if number < 700:
            file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(chance.randbytes(min(60_000, int(chance.expovariate(1 / 1500)))))
        os.utime(file, ns=(0, 1_700_000_000_000_001_000 + number * 1_000_000_007_000))
    report = local_repository.ingest([tmp_path / "tree"], format=name, jobs=1)
    assert (report.files_added, report.files_failed) == (count, 0)
    assert formats_of(local_repository) == {name}
    assert local_repository.extract("", tmp_path / "out").files == count
    assert same_tree(tmp_path / "tree", tmp_path / "out" / str(tmp_path).lstrip("/") / "tree")
    assert local_repository.verify(level="data").ok == 1


# Verify


def test_flipped_byte_of_each_file_is_found_and_never_returned(packed: cafcat.Repository, tree: Path) -> None:
    spans = {location.path: location for location in packed.list()}
    small = [f"tree/small/{n:03}" for n in range(2, 60)]
    for path in TREE.keys() - small | {small[0], small[-1]}:
        content = TREE[path]
        if not content:
            continue
        location = spans[path]
        file = object_of(packed, location)
        data = file.read_bytes()
        piece = content[-40:][:20]
        byte = byte_of(data, location.start_byte, location.end_byte, piece)
        flip(file, byte)
        found = damages(packed)
        assert found == [("file", path)]
        for read in (packed.read, lambda path: b"".join(packed.stream(path))):
            with pytest.raises(Corrupt) as raised:
                read(path)
            assert raised.value.path == path
        if len(content) > 1 << 20 or len(content) < 100:
            report = packed.extract("", tree / "out", overwrite=True)
            assert [(failed.path, failed.kind) for failed in report.failed] == [(path, ProblemKind.CORRUPT)]
        flip(file, byte)
    assert damages(packed) == []


def damages(repository: cafcat.Repository) -> list[tuple[str, str | None]]:
    """Return kinds and paths of the damage that a verify of all bytes finds."""
    found: list[tuple[str, str | None]] = []

    def add(checked: Any) -> None:
        found.extend((str(finding.kind), finding.path) for finding in checked.findings)

    repository.with_progress(Following(on=add)).verify(level="data", restart=True, jobs=1)
    return found


FEW = {"a/first": b"first", "a/second": bytes(range(256)) + b"!", "b/empty": b"", "\u00fc/\u65e5\u672c": b"unicode"}


def with_dead_bytes(repository: cafcat.Repository, name: str) -> OpenChunk:
    """Begin a chunk with a file that was abandoned half-way."""
    chunk = begin(repository, FEW, all_new=False, archive_format=registry.by_name(name))
    given_up = chunk.open("a/given up", MODIFIED)
    given_up.write(b"dead" * 300_000)
    given_up.abandon()
    chunk.add("Z", b"z", None)
    return chunk


def targets(repository: cafcat.Repository) -> list[CheckTarget]:
    verification = repository.session.catalog.verification
    run = verification.begin(VerifyLevel.DATA, {"test": True}, restart=False)
    return verification.targets(run.id, VerifyScope(VerifyLevel.DATA), TargetKey(0, 0))


# Bits within spans that affect no file: the first bytes of a ChunkIO file; in DataBundle, bits between the end
# of the deflated data and the byte at which a flush begins.
UNNAMED = {"chunkio": len(FILE_HEADER), "databundle": 2}


@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.slow)])
def test_every_flipped_byte_is_found_and_named(local_repository: cafcat.Repository, name: str, every: int) -> None:
    """Each byte of a small object, or each eleventh one.

    A byte of a file is reported by the path of the file. A byte of the index is reported as such, even if only the
    index is verified. Any other byte is reported as one that belongs to no file.
    """
    chunk = begin(local_repository, FEW, archive_format=registry.by_name(name))
    chunk.finish(OnConflict.REPLACE, Progress())
    [target] = targets(local_repository)
    files = [(location.start_byte, location.end_byte, location.path) for location in local_repository.list()]
    file = object_of(local_repository, local_repository.locate("a/first"))
    unnamed = 0
    head_bytes = 110 if registry.by_name(name).rewrites_head else 0
    for byte in range(0, target.size_bytes, every):
        flip(file, byte, bits=1 << byte % 8)
        everything = check(local_repository, target, VerifyLevel.DATA)
        of_index = check(local_repository, target, VerifyLevel.INDEX) if byte % 5 == 0 else None
        flip(file, byte, bits=1 << byte % 8)
        in_files = [path for start, end, path in files if start <= byte < end]
        assert everything, byte
        if in_files and everything == [("gap", None)]:
            unnamed += 1
        elif in_files:
            assert everything == [("file", *in_files)], byte
        elif byte >= target.index_start_byte:
            assert everything == [("index", None)], byte
            assert of_index in (None, everything)
        elif byte >= head_bytes:
            assert everything == [("gap", None)], byte
        if target.index_start_byte > byte >= head_bytes:
            assert not of_index
    assert unnamed == UNNAMED.get(name, 0) or every > 1
    assert check(local_repository, target, VerifyLevel.DATA) == []


def check(repository: cafcat.Repository, target: CheckTarget, level: VerifyLevel) -> list[tuple[str, str | None]]:
    result = check_target(repository.session, target, level)
    assert result is not None
    assert (result.verdict is Verdict.OK) == (not result.findings)
    return [(str(finding.kind), finding.path) for finding in result.findings]


def test_index_is_verified_without_reading_files(
    packed: cafcat.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of bytes that are read proves that files are left out."""
    read: list[int] = []
    begin_section = IndexSection.__init__

    def spy(self: IndexSection, name: str, start_byte: int, blocks: Iterator[bytes], head: bytes = b"") -> None:
        begin_section(self, name, start_byte, blocks, head)
        read.append(self.size_bytes - start_byte + len(head))

    monkeypatch.setattr(IndexSection, "__init__", spy)
    report = packed.verify(level="index", jobs=1)
    assert report.ok == len(read) > 0
    assert sum(read) < 100_000


# Recover


def described(repository: cafcat.Repository) -> list[tuple[Any, ...]]:
    """Return a chunk and its files as rows."""
    return sql(
        repository,
        "SELECT format, size_bytes, data_bytes, index_start_byte, index_end_byte, file_count, live_file_count, "
        "live_bytes, crc64nvme, array_agg((file_path, start_byte, end_byte, crc32c, modified_at, content_bytes, "
        "decoding)::text ORDER BY file_path) FROM chunks AS c JOIN file_locations ON caf_file_id = c.id "
        "WHERE state = 'committed' GROUP BY c.id ORDER BY c.id",
    )


def test_adopted_chunk_has_the_rows_of_a_normal_commit(open_at: Opener, place: Place, name: str) -> None:
    repository = open_at(place)
    with_dead_bytes(repository, name).finish(OnConflict.REPLACE, Progress())
    expected = described(repository)
    sql(repository, "DELETE FROM file_locations")
    sql(repository, "UPDATE chunks SET state = 'deleted', live_file_count = 0, live_bytes = 0, deleted_at = now()")
    die_before_commit(with_dead_bytes(repository, name))
    end_leases(repository)
    report = repository.recover()
    assert report.files_adopted == len(FEW) + 1
    assert report.bytes_adopted == sum(map(len, FEW.values())) + 1
    assert described(repository) == expected
    assert {path: repository.read(path) for path in FEW} == FEW
    assert repository.read("Z") == b"z"


def test_half_chunks_are_abandoned_and_whole_ones_adopted(open_at: Opener, place: Place, name: str) -> None:
    repository = open_at(place)
    archive_format = registry.by_name(name)
    large = {"large": TREE["tree/larger"]}
    die_half_way(begin(repository, {"half": b"half"}, archive_format=archive_format))
    die_half_way(begin(repository, large, archive_format=archive_format))
    die_before_commit(begin(repository, {"whole": b"whole"} | large, archive_format=archive_format))
    end_leases(repository)
    report = repository.recover()
    assert counted(report) == {"abandoned": 2, "adopted": 1}
    assert states(repository) == ["abandoned", "abandoned", "committed"]
    assert_sound(repository, {"whole": b"whole"} | large)
    assert len(chunk_objects(place)) == 1
    assert place.uploads() == []


@pytest.mark.parametrize("cut", ["head", "end", "byte"])
def test_a_damaged_object_is_not_adopted(
    local_repository: cafcat.Repository, folder: Folder, name: str, cut: str
) -> None:
    chunk = die_before_commit(begin(local_repository, FEW, archive_format=registry.by_name(name)))
    [(key, data)] = chunk_objects(folder).items()
    byte = data.index(FEW["a/second"][:40]) + 3
    damaged = {"head": data[:200], "end": data[:-1], "byte": data[:byte] + b"?" + data[byte + 1 :]}[cut]
    folder.write(key, damaged)
    end_leases(local_repository)
    assert counted(local_repository.recover()) == {"abandoned": 1}
    assert state_of(local_repository, str(chunk.uuid)) == "abandoned"
    assert chunk_objects(folder) == {}


# Rebuild


def test_rebuild_from_the_stores_gives_the_same_catalog(world: World, tree: Path, name: str) -> None:
    """The catalog has replaced, removed and restored files, and a chunk that was not committed."""
    ingest(world.repository, name)
    for path in ("tree/large", "tree/small/010"):
        Path(path).write_bytes(b"newer" * 300_000)
    world.repository.ingest(["tree"], format=name)
    world.repository.rm(["tree/a/empty", "tree/zeros"])
    world.repository.undelete(["tree/zeros"])
    world.assert_rebuilds()
    left = leave_whole(world.repository, {"late": b"late" * 500_000}, archive_format=registry.by_name(name))
    rebuilt, report = world.rebuilt()
    assert [str(chunk) for chunk in report.adopted] == [left]
    world.repository.recover()
    assert world.differences(rebuilt) == []
    rows = "SELECT file_path, start_byte, end_byte, content_bytes, decoding FROM {} ORDER BY 1, 2"
    for table in ("file_locations", "retired_locations"):
        assert sql(rebuilt, rows.format(table)) == sql(world.repository, rows.format(table))
    for repository in (world.repository, rebuilt):
        assert repository.read("late") == b"late" * 500_000


# Repair


@pytest.mark.parametrize("path", ["tree/small/040", "tree/larger", "tree/a/70 KiB"])
@pytest.mark.parametrize("origin", ["copy", "source"])
def test_flipped_byte_is_repaired(packed: cafcat.Repository, tree: Path, path: str, origin: str, name: str) -> None:
    before = rows(packed)
    if origin == "copy":
        packed.copy(to=str(tree / "copies"))
    location = packed.locate(path)
    file = object_of(packed, location)
    piece = TREE[path][:20]
    flip(file, file.read_bytes().index(piece, location.start_byte))
    options: dict[str, Any] = {"from_copies": True} if origin == "copy" else {"sources": ["tree"]}
    report = follow(packed, options).repair(chunks=[str(location.chunk)], **options)
    mended = report.files_from_copy if origin == "copy" else report.files_from_source
    assert (mended, report.files_lost) == (1, 0)
    assert rows(packed) == before
    assert state_of(packed, str(location.chunk)) == "retired"
    file.unlink()
    assert {path: packed.read(path) for path in TREE} == TREE
    assert formats_of(packed) == {name}


# Repack


@pytest.mark.parametrize(("first", "second"), OTHERS)
def test_from_one_format_into_another_and_back(
    local_repository: cafcat.Repository, tree: Path, first: str, second: str
) -> None:
    repository = local_repository
    ingest(repository, first)
    before, chunks = rows(repository), described(repository)
    for name in (second, first):
        report = repository.repack(max_unused=1.0, format=name, target_size=TARGET_BYTES)
        assert (report.files_moved, report.files_damaged, report.failed) == (len(TREE), 0, [])
        assert report.bytes_moved == sum(map(len, TREE.values()))
        assert formats_of(repository) == {name}
        assert rows(repository) == before
        assert_sound(repository)
    assert repository.repack(max_unused=1.0, format=first).chunks == 0
    assert sum(row[2] for row in described(repository)) == sum(row[2] for row in chunks)


def test_a_repack_keeps_the_format(packed: cafcat.Repository, tree: Path, name: str) -> None:
    small = {path for path in TREE if path.startswith("tree/small/")}
    packed.rm(sorted(small))
    kept = {path: content for path, content in TREE.items() if path not in small}
    report = packed.repack(max_unused=0.0)
    assert report.chunks_retired == report.chunks > 0
    assert formats_of(packed) == {name}
    assert_sound(packed, kept)
    assert packed.repack(max_unused=0.0).chunks == 0


@pytest.mark.parametrize(("first", "second"), OTHERS[:1])
def test_single_small_chunk_of_a_format_is_not_repacked(
    local_repository: cafcat.Repository, first: str, second: str
) -> None:
    """Repacking such a chunk would give another of the same size. Two chunks of one format become one."""
    for number, name in enumerate((first, second, first)):
        begin(local_repository, {str(number): b"x" * 100}, archive_format=registry.by_name(name)).finish(
            OnConflict.REPLACE, Progress()
        )
    assert local_repository.repack(small=10**9).chunks == 2
    assert local_repository.repack(small=10**9).chunks == 0
    assert local_repository.repack(small=10**9, format=second).chunks == 2
    assert formats_of(local_repository) == {second}
    assert local_repository.repack(small=10**9).chunks == 0


def test_an_unknown_format_is_refused_before_anything_is_done(packed: cafcat.Repository, name: str) -> None:
    runs = sql(packed, "SELECT count(*) FROM ingest_runs")
    for attempt in (partial(packed.ingest, ["tree"]), partial(packed.repack, dry_run=True)):
        with pytest.raises(InvalidInput, match="there is no format 'zip'"):
            attempt(format="zip")
    with pytest.raises(Unsupported, match="only the program clp-s can write them"):
        packed.repack(format="clp-s", dry_run=True)
    assert sql(packed, "SELECT count(*) FROM ingest_runs") == runs
    assert set(states(packed)) == {"committed"}


# Removal


def test_rm_undelete_and_prune(packed: cafcat.Repository, folder: Folder, name: str) -> None:
    packed.rm(["tree/larger"], folders=["tree/a"])
    kept = {path: content for path, content in TREE.items() if not path.startswith(("tree/a/", "tree/larger"))}
    assert_sound(packed, kept)
    assert packed.undelete(["tree/larger"]).files == 1
    assert packed.read("tree/larger") == TREE["tree/larger"]
    before = chunk_objects(folder)
    packed.rm(["tree/larger"])
    assert packed.prune(grace_seconds=0).chunks == 1
    assert len(chunk_objects(folder)) == len(before) - 1
    assert_sound(packed, kept)


def test_dead_bytes_count_sizes_of_files(local_repository: cafcat.Repository, folder: Folder, name: str) -> None:
    """The overhead of a format does not count.

    A chunk whose files are all live has no dead bytes. If half of its bytes were replaced, half of it is dead.
    """
    repository = local_repository
    files = {
        f"{number:02}": bytes([number]) * size for number, size in enumerate([10, 10, 5000, 5000, 2**21, 2**21])
    }
    chunk = begin(repository, files, archive_format=registry.by_name(name))
    chunk.finish(OnConflict.REPLACE, Progress())
    total = sum(map(len, files.values()))
    assert repository.stats().dead_bytes == 0
    assert repository.repack(max_unused=0.0, dry_run=True).chunks == 0
    newer = dict.fromkeys(list(files)[::2], b"newer")
    begin(repository, newer, all_new=False, archive_format=registry.by_name(name)).finish(
        OnConflict.REPLACE, Progress()
    )
    counters = "SELECT data_bytes, live_bytes, file_count, live_file_count FROM chunks ORDER BY id"
    assert sql(repository, counters) == [(total, total // 2, 6, 3), (15, 15, 3, 3)]
    assert repository.stats().dead_bytes == total // 2
    assert repository.stats().retired_bytes == 0
    report = repository.repack(max_unused=0.4)
    assert (report.chunks, report.bytes_dead, report.files_moved) == (1, total // 2, 3)
    assert repository.stats().dead_bytes == 0
    assert_sound(repository, files | newer)


# Copies and backups


def test_a_copy_is_read_where_the_chunk_is_gone(
    packed: cafcat.Repository, tree: Path, folder: Folder, name: str
) -> None:
    report = packed.copy(to=str(tree / "copies"))
    assert report.copied == len(chunk_objects(folder))
    assert_sound(packed)
    for key in chunk_objects(folder):
        (folder.folder / key).unlink()
    assert {path: packed.read(path) for path in TREE} == TREE
    assert dict(packed.read_many(TREE)) == TREE
    assert packed.extract("", tree / "out").files == len(TREE)
    assert same_tree(tree / "tree", tree / "out" / "tree")


def test_a_damaged_chunk_is_read_from_its_copy(packed: cafcat.Repository, tree: Path, folder: Folder) -> None:
    """The damage may be in the middle of a large file, whose first bytes were returned already."""
    packed.copy(to=str(tree / "copies"))
    for path in ("tree/larger", "tree/small/040"):
        location = packed.locate(path)
        file = object_of(packed, location)
        flip(file, file.read_bytes().index(TREE[path][-30:-5], location.start_byte))
    assert dict(packed.read_many(TREE)) == TREE
    assert packed.read("tree/larger") == TREE["tree/larger"]
    packed.get("tree/larger", tree / "got")
    assert (tree / "got").read_bytes() == TREE["tree/larger"]
    assert packed.extract("", tree / "out").files_failed == 0


def test_a_backup_brings_every_row_back(local: World, tree: Path, name: str) -> None:
    ingest(local.repository, name)
    local.repository.rm(["tree/large"])
    local.repository.backup()
    empty = local.empty()
    empty.restore()
    assert local.differences(empty) == []
    for table in ("file_locations", "retired_locations", "chunks"):
        statement = f"SELECT * FROM {table} ORDER BY 1, 2, 3"
        assert sql(empty, statement) == sql(local.repository, statement)
    assert_sound(empty, {path: content for path, content in TREE.items() if path != "tree/large"})
