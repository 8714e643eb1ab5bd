"""Output of the CAR writer, beyond the requirements of all formats."""

import hashlib
import random
from collections import Counter

import pytest

from cafcat.errors import Corrupt, Refused, Unsupported
from cafcat.formats.base import HeadSink
from cafcat.formats.caf.format import CAF
from cafcat.formats.car import CAR, CarReader, CarWriter, dag_pb, tree_writer
from cafcat.formats.car.cid import block_matches, cid_to_text, parse
from cafcat.formats.car.hamt import name_hash
from cafcat.formats.car.header import V2_DATA_START
from cafcat.formats.car.index import IndexBuilder
from cafcat.formats.car.manifest import TRAILER_BYTES, large_file_size
from cafcat.formats.car.nodes import LINKS_PER_NODE, SectionWriter, write_large_file
from cafcat.formats.car.shards import write_shards
from cafcat.formats.car.tree_names import SHARD_BYTES_PER_LINK, tree_name
from cafcat.formats.car.tree_writer import TreeWriter
from cafcat.formats.writing import BufferedBytes
from cafcat.model import Entry, NewFile
from cafcat.support.sorting import ExternalSort
from cafcat.testing.formats import BytesArchive, ListSink, pack
from tests.worlds.archives.car_archives import without_manifest

MIB = 1 << 20
Files = list[tuple[str, bytes, int | None]]


def read(data: bytes) -> dict[str, bytes]:
    """Return the files that another program finds through the tree."""
    reader = CAR.reader(BytesArchive(without_manifest(data)))
    return {entry.path: b"".join(reader.open(entry)) for entry in reader.entries()}


class Nodes(SectionWriter):
    """Keeps the nodes that are written to it, by their CIDs."""

    def __init__(self) -> None:
        super().__init__(BufferedBytes(ListSink()))
        self.write(bytes(V2_DATA_START))
        self.blocks: dict[bytes, bytes] = {}

    def write_node(self, block: bytes) -> bytes:
        cid = super().write_node(block)
        self.blocks[cid] = block
        return cid


def check_whole(data: bytes) -> None:
    """Check that every block matches its hash, and that the index lists all sections."""
    reader = CarReader(BytesArchive(data))
    builder = IndexBuilder()
    for start, cid, begin, end in reader.sections():
        assert block_matches(cid, data[begin:end])
        builder.add(cid, start - reader.layout.data_start)
    assert b"".join(builder.blocks()) == data[reader.layout.index_start :]


def test_tree_has_the_same_files_for_other_programs() -> None:
    files: Files = [
        ("b/c/file", b"1", 5),
        ("a", b"", None),
        ("b/file", b"2" * 999, -5),
        ("b/c/d", b"3", 0),
        ("z", b"1", 1),
    ]
    data, _, _ = pack(CAR, files)
    assert read(data) == {path: content for path, content, _ in files}
    assert list(read(data)) == sorted(path for path, _, _ in files)
    check_whole(data)


@pytest.mark.parametrize("size_bytes", [MIB - 1, MIB, MIB + 1, 2 * MIB, 2 * MIB + 1, 5 * MIB + 12345])
@pytest.mark.parametrize("block_bytes", [100_001, 3 * MIB])
def test_files_are_cut_into_leaves_of_a_mebibyte(size_bytes: int, block_bytes: int) -> None:
    content = random.Random(size_bytes).randbytes(size_bytes)
    time = 1_600_000_000_000_000_001
    data, (entry, other), _ = pack(CAR, [("file", content, time), ("other", b"x", None)])
    sink = ListSink()
    writer = CAR.writer(sink)
    assert size_bytes < writer.size_if_finalized("file", size_bytes) < size_bytes + 4096
    with_blocks = writer.open("file", time)
    for offset in range(0, size_bytes, block_bytes):
        with_blocks.write(content[offset : offset + block_bytes])
        assert writer.size_if_finalized() < size_bytes + 4096
    predicted = writer.size_if_finalized()
    assert (with_blocks.close(), writer.add("other", b"x", None)) == (entry, other)
    writer.finalize()
    assert sink.data == data
    assert len(data) > size_bytes
    assert predicted + 300 >= len(data)
    assert (entry.decoding, entry.size_bytes) == ("sections" if size_bytes > MIB else None, size_bytes)
    assert read(data) == {"file": content, "other": b"x"}
    reader = CAR.reader(BytesArchive(data))
    assert list(reader.entries()) == [entry, other]
    assert b"".join(reader.open(entry)) == content
    as_others = CAR.reader(BytesArchive(without_manifest(data)))
    times = {entry.path: entry.modified_ns for entry in as_others.entries()}
    assert times == {"file": time if size_bytes > MIB else None, "other": None}
    check_whole(data)


def test_the_size_of_a_large_file_follows_from_its_span() -> None:
    for size_bytes in [MIB + 1, MIB + 91, MIB + 92, MIB + 93, MIB + 16_347, MIB + 16_348, MIB + 16_349, 7 * MIB]:
        content = bytes(size_bytes)
        _, (entry,), _ = pack(CAR, [("file", content, None)])
        assert large_file_size(entry.end_byte - entry.start_byte) == size_bytes
    with pytest.raises(ValueError, match="sections of a file's leaves"):
        large_file_size(MIB + 39 + 37)


def test_files_of_more_leaves_than_a_node_has_links_get_levels() -> None:
    nodes = Nodes()
    digests = [hashlib.sha256(b"%d" % n).digest() for n in range(LINKS_PER_NODE * 2 + 1)]
    root, total_bytes = write_large_file(nodes, digests, 10, len(digests) * 10 - 3, None)
    counts = sorted(len(dag_pb.decode(block).links) for block in nodes.blocks.values())
    assert counts == [1, 3, LINKS_PER_NODE, LINKS_PER_NODE]
    assert total_bytes == len(digests) * 10 - 3 + sum(map(len, nodes.blocks.values()))
    assert [link.total_bytes for link in dag_pb.decode(nodes.blocks[root]).links][-1] > 7


def test_names_that_a_tree_cannot_have() -> None:
    paths = {
        "/abs": "abs",
        "a//b": "a/b",
        "./c": "c",
        "d/": "d",
        "../up": "%2E%2E/up",
        "e/../f": "e/%2E%2E/f",
        "...": "...",
    }
    for path, name in paths.items():
        assert tree_name(path) == name
    for path in (".", "/", "./", "//"):
        assert tree_name(path) == ""
    files: Files = [(path, path.encode(), None) for path in [*paths, "."]]
    data, entries, _ = pack(CAR, files)
    assert read(data) == {name: path.encode() for path, name in paths.items()}
    assert list(CAR.reader(BytesArchive(data)).entries()) == entries


def test_where_a_file_and_a_folder_have_one_name_the_folder_stands_in_the_tree() -> None:
    files: Files = [
        ("a", b"file", None),
        ("a/b", b"in folder", None),
        ("a!", b"other", None),
        ("a/", b"file, too", None),
    ]
    data, entries, _ = pack(CAR, files)
    assert read(data) == {"a/b": b"in folder", "a!": b"other"}
    assert list(CAR.reader(BytesArchive(data)).entries()) == entries


def test_later_of_two_files_at_one_path_is_in_the_tree() -> None:
    data, entries, _ = pack(CAR, [("x/a", b"first", None), ("x//a", b"second", None), ("x/a", b"third", None)])
    assert read(data) == {"x/a": b"third"}
    assert len(entries) == 3


@pytest.mark.parametrize("count", [1500, 2300, 9000])
def test_large_folders_are_spread_over_shards(count: int) -> None:
    files: Files = [(f"folder/{n:0100}", b"%d" % n, n) for n in range(count)]
    sink = ListSink()
    writer = CAR.writer(sink)
    for path, content, time in files:
        writer.add(path, content, time)
    predicted = writer.size_if_finalized()
    writer.finalize()
    assert predicted >= len(sink.data)
    assert read(sink.data) == {path: content for path, content, _ in files}
    kinds = Counter(parse(cid).codec for _, cid, _, _ in CarReader(BytesArchive(sink.data)).sections())
    assert (kinds[0x70] > 2) == (count > 1500)
    check_whole(sink.data)


def test_links_that_do_not_fit_into_memory_wait_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_writer, "_BUFFER_BYTES", 1000)
    files: Files = [(f"{n % 3}/{'d/' * (n % 5)}{n:0200}", b"%d" % n, n) for n in range(6000)]
    data, _, _ = pack(CAR, files)
    assert read(data) == {path: content for path, content, _ in files}


def hash_of_pairs(name: bytes) -> bytes:
    """Return a hash. Two names each differ only in its last byte, which makes seven shards for every pair."""
    return (int(name) // 2 * 29).to_bytes(2) + b"\7\7\7\7\7" + bytes([int(name) % 2])


def test_names_with_similar_hashes_stay_within_the_predicted_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cafcat.formats.car.shards.name_hash", hash_of_pairs)
    files: Files = [(f"{n:0100}", b"", n) for n in range(4000)]
    sink = ListSink()
    writer = CAR.writer(sink)
    entries = [writer.add(*file) for file in files]
    predicted = writer.size_if_finalized()
    writer.finalize()
    assert predicted >= len(sink.data)
    assert len(read(sink.data)) == 2000
    assert list(CAR.reader(BytesArchive(sink.data)).entries()) == entries


def test_one_of_several_names_with_equal_hashes_is_in_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cafcat.formats.car.shards.name_hash", lambda _: bytes(8))
    nodes = Nodes()
    cid = b"\x01\x55\x12\x20" + bytes(32)
    root, _ = write_shards(nodes, iter([dag_pb.Link(cid, b"%d" % n, 0) for n in range(10)]))
    assert [link.name for link in dag_pb.decode(nodes.blocks[root]).links] == [b"000"]


def test_the_hash_of_names_is_murmur3() -> None:
    assert name_hash(b"") == bytes(8)
    assert name_hash(b"hello").hex() == "cbd8a7b341bd9b02"
    assert name_hash(b"The quick brown fox jumps over the lazy dog").hex() == "e34bbc7bbc071b6c"


@pytest.mark.parametrize("seed", range(6))
def test_size_is_predicted_with_folders_large_and_abandoned_files(seed: int) -> None:
    rng = random.Random(seed)
    sink = ListSink()
    writer = CAR.writer(sink)
    for n in range(300):
        path = "/".join(rng.choice("abcdefgh") * rng.choice([1, 200]) for _ in range(rng.randrange(1, 6))) + f"/{n}"
        size_bytes = rng.choice([0, 1, 91, 92, 16_347, 16_348, 70_000, MIB + 1 if n % 50 == 0 else 5])
        predicted = writer.size_if_finalized(path, size_bytes)
        if rng.random() < 0.7:
            assert writer.add_all([NewFile(path, bytes(size_bytes), n)], predicted)
        else:
            entry = writer.open(path, n)
            entry.write(bytes(size_bytes))
            assert predicted >= writer.size_if_finalized()
            entry.abandon() if rng.random() < 0.3 else entry.close()
        assert predicted >= writer.size_if_finalized()
    predicted = writer.size_if_finalized()
    writer.finalize()
    assert len(sink.data) <= predicted < len(sink.data) + 30_000
    check_whole(sink.data)


def test_everything_up_to_the_manifest_is_a_caf_archive() -> None:
    data, entries, finished = pack(CAR, [("a", b"first", 1), ("b", b"second", 2)])
    index_start = CarReader(BytesArchive(data)).layout.index_start
    assert index_start is not None
    caf = data[: index_start - TRAILER_BYTES]
    assert list(CAF.reader(BytesArchive(caf)).entries()) == entries
    assert CAF.reader(BytesArchive(caf)).index_span[0] == finished.index_start_byte


def test_a_manifest_that_does_not_fit_is_refused() -> None:
    data, _, finished = pack(CAR, [("a", b"first", 1)])
    for position in range(finished.index_start_byte, len(data) - 70, 3):
        changed = data[:position] + bytes([data[position] ^ 0x11]) + data[position + 1 :]
        try:
            found = list(CAR.reader(BytesArchive(changed)).entries())
        except (Corrupt, Unsupported):
            continue
        assert len(found) == 1
    with pytest.raises(Corrupt, match="not a complete CAR: it should have"):
        list(CAR.reader(BytesArchive(data + b"more")).entries())


def test_sink_without_a_rewritable_head_is_refused() -> None:
    class Stream:
        def write(self, data: bytes) -> None: ...

    assert isinstance(ListSink(), HeadSink)
    with pytest.raises(Unsupported, match="first bytes"):
        CAR.writer(Stream())


def test_an_archive_whose_head_was_not_written_is_refused() -> None:
    sink = ListSink()
    sink.rewrite_head = lambda _: None  # type: ignore[method-assign]
    writer = CAR.writer(sink)
    writer.add("a", b"x", None)
    writer.finalize()
    assert CAR.sniff(sink.data[:64], b"")
    with pytest.raises(Corrupt):
        CAR.reader(BytesArchive(sink.data))


def test_an_archive_whose_manifest_is_full() -> None:
    sink = ListSink()
    writer = CarWriter(sink, max_manifest_bytes=400)
    while writer.can_add("file", 1):
        writer.add("file", b"x", 1)
    count = writer.file_count
    assert count > 1
    with pytest.raises(Refused, match="manifest is full"):
        writer.open("file", None)
    added = writer.add_all([NewFile("file", b"x", 1)] * 5, 1 << 40)
    assert len(added) < 5
    finished = writer.finalize()
    assert finished.file_count == count + len(added)
    assert len(sink.data[finished.index_start_byte :]) < 400 + 40 * 20


def test_sorting_on_disk() -> None:
    rng = random.Random(1)
    records = [rng.randbytes(rng.choice([0, 1, 40, 3000])) for _ in range(2000)]
    sort = ExternalSort("a test", memory_bytes=5000)
    for record in records:
        sort.add(record)
    assert list(sort) == list(sort) == sorted(records)
    assert sort.size_bytes == sum(map(len, records))
    sort.close()


def test_a_tree_of_nothing() -> None:
    nodes = Nodes()
    root = TreeWriter().write(nodes)
    assert (
        cid_to_text(root) == "bafybeiczsscdsbs7ffqz55asqdf3smv6klcw3gofszvwlyarci47bgf354"
    )  # the well-known CID of the empty directory
    assert SHARD_BYTES_PER_LINK > 0


def test_entries_of_forged_manifests_are_refused_when_opened() -> None:
    data, (entry,), _ = pack(CAR, [("a", b"x" * 100, 1)])
    reader = CAR.reader(BytesArchive(data))
    for start, end in ((0, 10), (entry.start_byte, entry.end_byte - 1), (entry.start_byte + 1, entry.end_byte + 1)):
        with pytest.raises(Corrupt):
            list(reader.open(Entry("a", start, end, None, None)))
    with pytest.raises(Corrupt, match="CRC-32C"):
        list(reader.open(entry._replace(crc32c=1)))
