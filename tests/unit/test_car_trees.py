"""UnixFS trees that the CAR reader lists, and hostile trees."""

import struct
from collections.abc import Iterator

import pytest

from cafcat.errors import Corrupt, Unsupported
from cafcat.formats.car import CAR, CarReader, dag_pb, unixfs
from cafcat.formats.car.cid import DAG_PB, RAW, cid_to_text
from cafcat.formats.car.varint import encode
from cafcat.model import Entry
from cafcat.testing.formats import BytesArchive
from tests.worlds.archives.car_archives import Block, cid, cid_of, directory, file, leaf, node, v1

A, B, C = leaf(b"a" * 100), leaf(b"b" * 50), leaf(b"c")


def listed(root: Block, *blocks: Block) -> tuple[bytes, dict[str, Entry]]:
    data = v1([root[0]], list(blocks))
    return data, {entry.path: entry for entry in CAR.reader(BytesArchive(data)).entries()}


def contents(data: bytes, entry: Entry) -> Iterator[bytes]:
    """Yield the content by the reader that listed it, by a new reader, and from the span alone in small blocks."""
    reader = CarReader(BytesArchive(data))
    assert entry in list(reader.entries())
    yield b"".join(reader.open(entry))
    yield b"".join(CarReader(BytesArchive(data)).open(entry))
    if entry.decoding is not None:
        span = data[entry.start_byte : entry.end_byte]
        yield b"".join(CAR.decode((span[at : at + 7] for at in range(0, len(span), 7)), entry))


def check(data: bytes, entry: Entry, expected: bytes) -> None:
    assert entry.size_bytes == len(expected)
    assert set(contents(data, entry)) == {expected}


def test_a_file_whose_blocks_stand_in_order_is_its_sections() -> None:
    top = file(151, A[0], B[0], C[0])
    root = directory((b"file", top[0]))
    for blocks in ([root, top, A, B, C], [A, B, C, top, root], [C, root, A, top, B]):
        data, entries = listed(root, *blocks)
        check(data, entries["file"], A[1] + B[1] + C[1])
        assert (entries["file"].decoding == "sections") == (blocks[0] is not C)


def test_blocks_in_another_order_or_apart_are_gathered() -> None:
    top = file(301, A[0], B[0], A[0], C[0], B[0])
    expected = A[1] + B[1] + A[1] + C[1] + B[1]
    root = directory((b"file", top[0]))
    for blocks in ([root, top, C, B, A], [B, leaf(b"other"), A, C, root, top], [top, A, B, C, root]):
        data, entries = listed(root, *blocks)
        assert entries["file"].decoding == "dag " + cid_to_text(top[0])
        check(data, entries["file"], expected)


def test_a_single_file_has_its_cid_as_its_name() -> None:
    top = file(101, A[0], C[0])
    data, entries = listed(top, top, A, C)
    assert list(entries) == [cid_to_text(top[0])]
    check(data, entries[cid_to_text(top[0])], A[1] + C[1])


def test_content_within_nodes_and_levels_of_nodes() -> None:
    inner = file(103, A[0], inline=b"in ")
    old_leaf = node(b"\x08\x00\x12\x04rawl\x18\x04")
    top = file(0, inner[0], old_leaf[0], C[0], inline=b"head ")
    expected = b"head in " + A[1] + b"rawl" + C[1]
    for blocks in ([top, inner, A, old_leaf, C], [A, inner, C, old_leaf, top]):
        data, entries = listed(top, *blocks)
        check(data, entries[cid_to_text(top[0])], expected)


def test_symlinks_are_their_targets() -> None:
    link = node(b"\x08\x04\x12\x09../target")
    root = directory((b"link", link[0]))
    data, entries = listed(root, root, link)
    assert entries["link"].decoding == "symlink"
    check(data, entries["link"], b"../target")


def test_files_within_their_cids() -> None:
    raw = cid(RAW, 0, b"tiny")
    tiny = cid(DAG_PB, 0, node(b"\x08\x02\x12\x05small")[1])
    mixed = file(9, raw, A[0], tiny)
    nested = cid(DAG_PB, 0, directory((b"deep", raw))[1])
    root = directory((b"mixed", mixed[0]), (b"nested", nested), (b"raw", raw), (b"tiny", tiny))
    data, entries = listed(root, root, mixed, A)
    assert sorted(entries) == ["mixed", "nested/deep", "raw", "tiny"]
    check(data, entries["raw"], b"tiny")
    check(data, entries["tiny"], b"small")
    check(data, entries["nested/deep"], b"tiny")
    check(data, entries["mixed"], b"tiny" + A[1] + b"small")
    with pytest.raises(Corrupt, match="does not contain the CID"):
        list(CAR.decode(iter((b"something else",)), entries["raw"]))


def test_a_root_within_its_cid_may_have_a_section() -> None:
    block = node(b"\x08\x02\x12\x05small")[1]
    root = cid(DAG_PB, 0, block), block
    data, entries = listed(root, root)
    [entry] = entries.values()
    assert entry.decoding == "sections"
    check(data, entry, b"small")


@pytest.mark.parametrize(
    ("seconds", "fraction", "expected"),
    [(0, 0, 0), (1_700_000_000, 5, 1_700_000_000_000_000_005), (-1, 999_999_999, -1), (1 << 62, 0, None)],
)
def test_times(seconds: int, fraction: int, expected: int | None) -> None:
    message = dag_pb.number_field(1, seconds & (1 << 64) - 1) + b"\x15" + struct.pack("<I", fraction)
    top = node(b"\x08\x02\x12\x01x\x38\xed\x03\x42" + encode(len(message)) + message)
    _, entries = listed(top, top)
    assert entries[cid_to_text(top[0])].modified_ns == expected


def test_missing_block_affects_only_its_own_files() -> None:
    gone = cid_of(b"gone")
    lost = cid_of(b"lost", DAG_PB)
    part = file(150, A[0], gone)
    root = directory((b"bad", part[0]), (b"folder", lost), (b"good", B[0]), (b"raw", gone))
    data, entries = listed(root, root, part, A, B)
    assert sorted(entries) == ["bad", "folder", "good", "raw"]
    check(data, entries["good"], B[1])
    for name, target in (("bad", gone), ("folder", lost), ("raw", gone)):
        for source in (CAR.reader(BytesArchive(data)).open(entries[name]), CAR.decode(iter(()), entries[name])):
            with pytest.raises(Corrupt, match=f"block {cid_to_text(target)} is missing or damaged") as caught:
                list(source)
            assert caught.value.path == name


def test_damaged_block_affects_only_its_own_files() -> None:
    folder = directory((b"x", A[0]))
    top = file(51, B[0], C[0])
    root = directory((b"file", top[0]), (b"folder", folder[0]), (b"good", A[0]))
    data, _ = listed(root, root, folder, A, top, B, C)
    data = data.replace(folder[1], folder[1][:-1] + b"\x02").replace(B[1], b"B" * 50)
    entries = {entry.path: entry for entry in CAR.reader(BytesArchive(data)).entries()}
    assert sorted(entries) == ["file", "folder", "good"]
    check(data, entries["good"], A[1])
    for name in ("file", "folder"):
        with pytest.raises(Corrupt):
            list(CAR.reader(BytesArchive(data)).open(entries[name]))


def test_names_are_unchanged_and_each_path_is_listed_once() -> None:
    root = directory((b"..", A[0]), (b"a/b", B[0]), (b"same", A[0]), (b"same", B[0]))
    data, entries = listed(root, root, A, B)
    assert list(entries) == ["..", "a/b", "same"]
    check(data, entries["same"], A[1])
    bad = directory((b"\xff", A[0]))
    with pytest.raises(Corrupt, match="not valid UTF-8"):
        listed(bad, bad, A)


def shard(places: dict[int, tuple[bytes, bytes]], fanout: int = 256, digits: int = 2) -> Block:
    """Return a shard. places: name and CID of each slot; an empty name refers to another shard."""
    links = [(b"%0*X" % (digits, place) + name, target) for place, (name, target) in sorted(places.items())]
    return node(b"\x08\x05\x12\x01\xff\x28\x22\x30" + encode(fanout), *links)


def test_shards() -> None:
    below = shard({1: (b"deep", A[0])})
    root = shard({0: (b"top", B[0]), 7: (b"", below[0]), 8: (b"", cid_of(b"?", DAG_PB)), 9: (b"", B[0])})
    data, entries = listed(root, root, below, A, B)
    assert {path for path in entries if len(path) < 9} == {"top", "deep"}
    check(data, entries["deep"], A[1])
    broken = [entry for path, entry in entries.items() if len(path) > 9]
    assert len(broken) == 2
    for entry in broken:
        with pytest.raises(Corrupt):
            list(CAR.reader(BytesArchive(data)).open(entry))
    wide = shard({0x123: (b"x", A[0])}, 1024, 3)
    assert list(listed(wide, wide, A)[1]) == ["x"]


def forged(data: bytes, *links: tuple[bytes, bytes], name: bytes) -> Block:
    """Return a node with a CID that cannot be verified, so that nodes can contain each other."""
    return cid(DAG_PB, 0x1B, name), node(data, *links)[1]


def read_all(data: bytes) -> None:
    for entry in CAR.reader(BytesArchive(data)).entries():
        list(CAR.decode(iter((data[entry.start_byte : entry.end_byte],)), entry))


def ends(data: bytes, message: str) -> None:
    """Check that reading ends with an error. The limits of the reader make it end within a second."""
    with pytest.raises((Corrupt, Unsupported), match=message):
        read_all(data)


@pytest.mark.parametrize("kind", ["directory", "shard", "file"])
def test_cycles_end(kind: str) -> None:
    me = cid(DAG_PB, 0x1B, b"me")
    data = {"directory": unixfs.DIRECTORY, "shard": unixfs.shard_data(1), "file": unixfs.file_data(1, [])}[kind]
    name = {"directory": b"again", "shard": b"00", "file": b""}[kind]
    block = forged(data, (name, me), (name, me), name=b"me")
    ends(v1([me], [block]), "levels|missing or damaged|repeats")


@pytest.mark.parametrize("kind", ["directory", "shard", "file"])
def test_bombs_are_refused(kind: str) -> None:
    """40 levels with two links each to the same node below would give a million million files or bytes."""
    current = A
    blocks = [A]
    for _ in range(40):
        if kind == "file":
            current = file(1, current[0], current[0])
        elif kind == "shard":
            current = shard({0: (b"" if current is not A else b"x", current[0]), 1: (b"", current[0])})
        else:
            current = directory((b"a", current[0]), (b"b", current[0]))
        blocks.append(current)
    ends(v1([current[0]], blocks), "links to the same blocks too often")


def test_a_tree_may_be_a_thousand_levels_deep_and_no_deeper() -> None:
    current, blocks = A, [A]
    for _ in range(1000):
        current = directory((b"d", current[0]))
        blocks.append(current)
    data, entries = listed(current, *blocks)
    check(data, entries["/".join("d" * 1000)], A[1])
    for _ in range(100):
        current = directory((b"d", current[0]))
        blocks.append(current)
    with pytest.raises(Unsupported, match=r"more than 1,024 levels"):
        listed(current, *blocks)


def test_paths_do_not_grow_without_bound() -> None:
    current, blocks = A, [A]
    for _ in range(100):
        current = directory((b"d" * 1000, current[0]))
        blocks.append(current)
    with pytest.raises(Unsupported, match="a path of more than"):
        listed(current, *blocks)


def test_a_file_may_not_be_deeper_than_64_levels() -> None:
    current, blocks = A, [A]
    for _ in range(70):
        current = file(100, current[0])
        blocks.append(current)
    data, entries = listed(current, *blocks)
    (entry,) = entries.values()
    with pytest.raises(Corrupt):
        list(CAR.reader(BytesArchive(data)).open(entry))


NODES = [
    b"\x00",
    b"\x08\x01",
    b"\x12\x00",
    b"\x12\x02\x0a\x00",
    b"\x0a\x01x\x0a\x01y",
    b"\x1a\x01x",
    b"\x0b",
    b"\xff" * 11,
]
NODES += [b"\x12\x80\x80\x80\x80\x80\x80\x80\x80\x7f", b"\x12" + encode(38) + b"\x0a\x24" + A[0][:-1]]


@pytest.mark.parametrize("block", NODES)
def test_invalid_nodes_are_refused(block: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        dag_pb.decode(block)


UNIXFS = [
    b"",
    b"\x10\x01",
    b"\x08\x06",
    b"\x08\x80",
    b"\x0a\x01x",
    b"\x08\x02\x10\x01",
    b"\x08\x05",
    b"\x08\x02\x42\x00",
]
UNIXFS += [
    b"\x08\x05\x28\x22\x30\x09",
    b"\x08\x05\x28\x12\x30\x80\x02",
    b"\x08\x05\x28\x22\x30\x80\x10",
    b"\x08\x02\x22\x01\x80",
]
UNIXFS += [b"\x08\x02\x42\x07\x08\x01\x15\xff\xff\xff\xff"]


@pytest.mark.parametrize("data", UNIXFS)
def test_invalid_unixfs_data_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        unixfs.decode(data)


def test_unknown_fields_are_ignored() -> None:
    assert unixfs.decode(b"\x08\x02\x38\xa4\x03\x48\x07\x52\x01x").mode == 0o644


DECODINGS = [
    "",
    "sections",
    "symlink",
    "dag ",
    "dag x",
    "inline bafkqaba",
    "inline ",
    "broken x",
    "other",
    "dag " + cid_to_text(A[0]),
]


@pytest.mark.parametrize("decoding", DECODINGS)
@pytest.mark.parametrize("span", [b"", b"\0", b"\x80", b"garbage" * 100, encode(37) + A[0] + b"x"])
def test_spans_that_do_not_fit_their_decoding_are_refused(decoding: str, span: bytes) -> None:
    entry = Entry("x", 0, len(span), None, None, 10, decoding)
    with pytest.raises((Corrupt, Unsupported)) as caught:
        list(CAR.decode(iter((span,)), entry))
    assert "\n" not in str(caught.value)


def test_file_of_another_size_than_its_entry_is_refused() -> None:
    top = file(101, A[0], C[0])
    data, entries = listed(top, top, A, C)
    (entry,) = entries.values()
    span = data[entry.start_byte : entry.end_byte]
    for size_bytes in (0, 100, 102):
        with pytest.raises(Corrupt, match="bytes"):
            list(CAR.decode(iter((span,)), entry._replace(content_bytes=size_bytes)))
