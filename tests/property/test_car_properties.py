"""Properties of CAR: packed files are read back, also without the manifest; any bytes are read or refused."""

from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cafcat.errors import CafcatError, Corrupt, Unsupported
from cafcat.formats.car import CAR, CarReader, dag_pb, unixfs, varint
from cafcat.formats.car.cid import cid_from_text, cid_to_text, parse
from cafcat.formats.car.index import INDEX_SORTED, MULTIHASH_INDEX_SORTED, IndexBuilder, read_index
from cafcat.formats.car.manifest import trailer
from cafcat.model import MAX_PATH_BYTES, Entry
from cafcat.testing.formats import BytesArchive, pack
from tests.worlds.archives.car_archives import cid, directory, file, leaf, node, v1, v2, without_manifest

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
PATHS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(
    lambda path: len(path.encode()) <= MAX_PATH_BYTES
)
FILES = st.lists(st.tuples(PATHS, st.binary(max_size=200), st.none() | INT64), unique_by=lambda file: file[0])
PLAIN = st.lists(st.text("abc", min_size=1, max_size=2), min_size=1, max_size=4).map("/".join)
TREES = st.dictionaries(PLAIN, st.binary(max_size=50))
HASHES = st.sampled_from([0, 0x12, 0x13, 0x1B, 0xB220])
CIDS = st.builds(cid, st.sampled_from([0x55, 0x70, 0x71, 0x0129]), HASHES, st.binary(max_size=64))


def read(data: bytes, **options: bool) -> dict[str, bytes]:
    reader = CarReader(BytesArchive(data), **options)
    return {entry.path: b"".join(reader.open(entry)) for entry in reader.entries()}


@given(FILES)
def test_packed_files_are_read_back(files: list[tuple[str, bytes, int | None]]) -> None:
    data, entries, finished = pack(CAR, files)
    assert list(CAR.reader(BytesArchive(data)).entries()) == entries
    assert finished.size_bytes == len(data)
    assert read(data) == {path: content for path, content, _ in files}


@given(TREES)
@example({"a": trailer(0, 0), "b": trailer(0, 0)[:16]})  # contents like the trailer of a manifest
def test_packed_files_are_read_back_without_the_manifest(tree: dict[str, bytes]) -> None:
    data, _, _ = pack(CAR, [(path, content, None) for path, content in tree.items()])
    assert read(without_manifest(data)) == {
        path: content for path, content in tree.items() if not any(other.startswith(path + "/") for other in tree)
    }


@given(st.integers(0, (1 << 63) - 1), st.binary(max_size=3))
def test_varints_are_read_back(value: int, rest: bytes) -> None:
    encoded = varint.encode(value)
    assert varint.size(value) == len(encoded)
    assert varint.read(encoded + rest, 0) == (value, len(encoded))
    for size_bytes in range(len(encoded)):
        with pytest.raises(varint.Truncated):
            varint.read(encoded[:size_bytes], 0)


@given(CIDS)
def test_cids_are_parsed_from_their_text(raw: bytes) -> None:
    assert parse(raw).version == 1
    assert cid_from_text(cid_to_text(raw)) == raw


@given(st.binary(max_size=80))
def test_any_bytes_are_parsed_as_a_cid_or_refused(data: bytes) -> None:
    try:
        parse(data)
    except ValueError:
        return
    assert cid_from_text(cid_to_text(data)) == data


@given(st.text(max_size=80))
def test_any_text_is_parsed_as_a_cid_or_not(text: str) -> None:
    raw = cid_from_text(text)
    assert raw is None or cid_to_text(raw) == text


@given(st.lists(st.tuples(CIDS, st.integers(0, (1 << 63) - 1))), st.booleans())
def test_index_is_read_back(records: list[tuple[bytes, int]], by_function: bool) -> None:
    builder = IndexBuilder(MULTIHASH_INDEX_SORTED if by_function else INDEX_SORTED, fully_indexed=True)
    for raw, offset in records:
        builder.add(raw, offset)
    size_bytes = builder.size_bytes
    index = b"".join(builder.blocks())
    assert len(index) == size_bytes
    found = sorted(
        (code or 0, digest, offset) for code, digest, offset in read_index(BytesArchive(index), 0, len(index))
    )
    expected = [(parse(raw).hash_code if by_function else 0, parse(raw).digest, offset) for raw, offset in records]
    assert found == sorted(expected)


@given(st.lists(st.tuples(CIDS, st.binary(max_size=99)), max_size=30), st.integers(0, 70), st.binary(max_size=40))
def test_blocks_are_read_back(blocks: list[tuple[bytes, bytes]], padding: int, index: bytes) -> None:
    payload = v1([raw for raw, _ in blocks[:2]], blocks)
    for data in (payload, v2(payload, index, padding)):
        entries = list(CarReader(BytesArchive(data), by_cid=True).entries())
        firsts: dict[str, bytes] = {}
        for raw, content in blocks:
            firsts.setdefault(cid_to_text(raw), content)
        assert {entry.path: data[entry.start_byte : entry.end_byte] for entry in entries} == firsts


@cache
def seeds() -> list[bytes]:
    """Return archives with every kind of block."""
    leaves = [leaf(bytes([n]) * 40) for n in range(6)]
    files = [
        file(80, leaves[0][0], leaves[1][0]),
        file(80, leaves[3][0], leaves[2][0]),
        node(b"\x08\x04\x12\x03a/b"),
    ]
    shard = node(b"\x08\x05\x12\x01\x03\x28\x22\x30\x80\x02", (b"00deep", files[0][0]), (b"01", leaves[4][0]))
    inline = cid(0x55, 0, b"inline")
    links = zip(
        [b"a", b"b", b"c", b"d", b"e", b"f"], [*(f[0] for f in files), shard[0], leaves[5][0], inline], strict=True
    )
    root = directory(*links)
    tree = v1([root[0]], [root, *files, shard, *leaves])
    own, _, _ = pack(CAR, [(f"folder{n % 3}/file{n}", bytes([n]) * n, n) for n in range(12)])
    builder = IndexBuilder()
    for start, raw, _, _ in CarReader(BytesArchive(tree)).sections():
        builder.add(raw, start)
    index = b"".join(builder.blocks())
    return [tree, v2(tree, index, 7), own, v1([], leaves)]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Return an archive with some bytes changed, removed or inserted."""
    data = bytearray(draw(st.sampled_from(seeds())))
    for _ in range(draw(st.integers(1, 3))):
        position = draw(st.integers(0, len(data)))
        kind = draw(st.integers(0, 3))
        if kind == 0:
            del data[position:]
        elif kind == 1:
            data[position : position + draw(st.integers(1, 9))] = draw(st.binary(max_size=12))
        elif position < len(data):
            data[position] = draw(st.sampled_from([0, 1, 0x12, 0x7F, 0x80, 0xFF, data[position] ^ 1]))
    return bytes(data)


@given(st.binary(max_size=300) | damaged(), st.booleans(), st.booleans())
def test_any_bytes_are_read_or_refused(data: bytes, by_cid: bool, zero_padding: bool) -> None:
    try:
        reader = CarReader(BytesArchive(data), by_cid=by_cid, zero_padding=zero_padding)
        entries = list(reader.entries())
    except CafcatError as error:
        check_refusal(error)
        return
    assert len({entry.path for entry in entries}) == len(entries)
    for entry in entries:
        assert 0 <= entry.start_byte <= entry.end_byte <= len(data)
        check_content(data, entry, [reader.open(entry), from_span(data, entry)])
    try:
        list(reader.index())
    except CafcatError as error:
        check_refusal(error)


def from_span(data: bytes, entry: Entry) -> Iterator[bytes]:
    span = data[entry.start_byte : entry.end_byte]
    return iter((span,)) if entry.decoding is None else CAR.decode(iter((span,)), entry)


def check_content(data: bytes, entry: Entry, ways: list[Iterator[bytes]]) -> None:
    """Check that each way of reading gives the content of the entry's size or an error, and that contents agree."""
    found = set()
    for way in ways:
        try:
            found.add(b"".join(way))
        except CafcatError as error:
            check_refusal(error)
    assert len(found) <= 1
    assert all(len(content) == entry.size_bytes for content in found)


def check_refusal(error: CafcatError) -> None:
    assert isinstance(error, Corrupt | Unsupported)
    assert "\n" not in str(error)


@given(st.binary(max_size=100))
def test_any_bytes_are_decoded_as_a_node_or_refused(data: bytes) -> None:
    for decode in (dag_pb.decode, unixfs.decode):
        try:
            decode(data)
        except ValueError:
            continue


@given(st.lists(st.tuples(st.binary(max_size=9), st.integers(0, (1 << 64) - 1))), st.binary(max_size=20))
def test_nodes_are_decoded_as_encoded(links: list[tuple[bytes, int]], data: bytes) -> None:
    target = leaf(b"x")[0]
    encoded = [dag_pb.encode_link(target, name, size) for name, size in links]
    assert [dag_pb.link_size(len(target), len(name), size) for name, size in links] == [
        len(link) for link in encoded
    ]
    block = dag_pb.encode(b"".join(encoded), data)
    found = dag_pb.decode(block)
    assert [(link.name, link.total_bytes) for link in found.links] == links
    assert found.data == data
    assert list(dag_pb.links_of(block)) == list(found.links)


@given(st.integers(0, 1 << 60), st.lists(st.integers(0, 1 << 40)), st.none() | INT64)
def test_file_data_are_decoded_as_encoded(size_bytes: int, sizes: list[int], time: int | None) -> None:
    found = unixfs.decode(unixfs.file_data(size_bytes, sizes, time))
    assert (found.kind, found.file_bytes, found.block_bytes, found.modified_ns) == (
        unixfs.Kind.FILE,
        size_bytes,
        tuple(sizes),
        time,
    )
