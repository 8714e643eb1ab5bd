"""The archives that the CAR reader reads or refuses: of the original programs, and cafcat's own."""

import hashlib
import json
import struct
from typing import Any

import pytest

from cafcat.errors import CafcatError, Corrupt, Unsupported
from cafcat.formats.car import CAR, CarReader
from cafcat.formats.car.blocks import BlockTable
from cafcat.formats.car.cid import DAG_PB, RAW, block_matches, cid_from_text, cid_to_text
from cafcat.formats.car.header import MAX_HEADER_BYTES, PRAGMA
from cafcat.formats.car.index import INDEX_SORTED, MULTIHASH_INDEX_SORTED, IndexBuilder, read_index
from cafcat.formats.car.sections import MAX_SECTION_BYTES, SectionStream
from cafcat.formats.car.varint import encode
from cafcat.testing.formats import BytesArchive
from tests.worlds.archives import vector_files
from tests.worlds.archives.car_archives import cbor, cid, cid_of, directory, header, leaf, section, v1, v2
from tests.worlds.archives.vector_files import FIXTURES_OF_OTHERS, needs_fixtures, vector_path, with_fixtures

VECTORS = vector_files.VECTORS / "car"
A, B = leaf(b"first block"), leaf(b"second")
GOOD = v1([A[0]], [A, B])


def vector(name: str) -> BytesArchive:
    return BytesArchive(vector_path(f"car/{name}").read_bytes(), name)


def read(data: bytes, **options: bool) -> dict[str, bytes]:
    """Return all entries with their contents, which are also decoded from their spans alone."""
    reader = CarReader(BytesArchive(data), **options)
    found = {}
    for entry in reader.entries():
        content = found[entry.path] = b"".join(reader.open(entry))
        span = data[entry.start_byte : entry.end_byte]
        assert content == (span if entry.decoding is None else b"".join(CAR.decode(iter((span,)), entry)))
    return found


def refusal(data: bytes, **options: bool) -> CafcatError:
    with pytest.raises((Corrupt, Unsupported)) as caught:
        read(data, **options)
    assert "\n" not in str(caught.value)
    return caught.value


ANSWERED = [
    "js/basic",
    "js/many_300",
    "js/mixed_hashes",
    "js/no_roots",
    "ipld_spec/carv1-basic",
    "ipld_spec/carv2-basic",
]
WRAPPED = ["basic", "many_300", "mixed_hashes"]
COUNTS = {"sample-v1": 1049, "sample-v1-noidentity": 1043, "sample-v2-indexless": 1049, "sample-wrapped-v2": 1049}


def test_every_vector_is_read_here() -> None:
    names = {f"{path.parent.name}/{path.stem}" for path in VECTORS.glob("*/*.car")}
    names |= {name.removeprefix("car/").removesuffix(".car") for name in FIXTURES_OF_OTHERS}
    wrapped = {f"js/{name}.{kind}" for name in WRAPPED for kind in ("v2", "v2pad", "v2fullyindexed")}
    odd = {f"gocar/{name}" for name in ("badheaderlength", "sample-corrupt-pragma", "simple-unixfs", *COUNTS)}
    assert names == {*ANSWERED} | wrapped | odd


@pytest.mark.parametrize("name", with_fixtures(ANSWERED))
def test_sections_and_roots_are_as_expected(name: str) -> None:
    answer = json.loads(vector_path(f"car/{name}.json").read_text())
    check_answer(vector(f"{name}.car"), answer, 0)


@pytest.mark.parametrize("name", WRAPPED)
@pytest.mark.parametrize("kind", ["v2", "v2pad", "v2fullyindexed"])
def test_a_wrapped_archive_has_the_same_sections_at_its_payload(name: str, kind: str) -> None:
    answer = json.loads((VECTORS / "js" / f"{name}.json").read_text())
    archive = vector(f"js/{name}.{kind}.car")
    layout = CarReader(archive).layout
    assert (layout.version, layout.fully_indexed) == (2, kind == "v2fullyindexed")
    check_answer(archive, answer, layout.data_start)


def check_answer(archive: BytesArchive, answer: dict[str, Any], base: int) -> None:
    reader = CarReader(archive, by_cid=True)
    roots = answer["roots"] if "roots" in answer else answer["header"]["roots"]
    assert [cid_to_text(root) for root in reader.layout.roots] == [plain(root) for root in roots]
    expected = [
        (plain(block["cid"]), block["offset"], block["length"], block["blockOffset"], block["blockLength"])
        for block in answer["blocks"]
    ]
    found = [
        (cid_to_text(raw), start - base, end - start, data - base, end - data)
        for start, raw, data, end in reader.sections()
    ]
    assert found == expected
    by_path = {entry.path: entry for entry in reader.entries()}
    assert list(by_path) == list(dict.fromkeys(block[0] for block in expected))
    for block in answer["blocks"]:
        entry = by_path[plain(block["cid"])]
        assert reader.verifiable(entry)
        content = b"".join(reader.open(entry))
        assert hashlib.sha256(content).hexdigest() == block.get("sha256", hashlib.sha256(content).hexdigest())


def plain(value: Any) -> str:
    return str(value["/"] if isinstance(value, dict) else value)


@needs_fixtures
@pytest.mark.parametrize("name", sorted(COUNTS))
def test_archives_of_go_are_read_and_every_block_is_checked(name: str) -> None:
    archive = vector(f"gocar/{name}.car")
    reader = CarReader(archive)
    entries = list(reader.entries())
    assert len(entries) == COUNTS[name]
    assert all(reader.verifiable(entry) for entry in entries)
    assert sum(len(b"".join(reader.open(entry))) for entry in entries) > 400_000


@needs_fixtures
@pytest.mark.parametrize(
    ("name", "message"),
    [("badheaderlength", "header has 216,830,324,832 bytes"), ("sample-corrupt-pragma", "its header")],
)
def test_corrupt_archives_of_go_are_refused(name: str, message: str) -> None:
    assert message in str(refusal(vector_path(f"car/gocar/{name}.car").read_bytes()))


@needs_fixtures
def test_a_tree_of_go_gives_its_paths_and_its_blocks() -> None:
    data = vector_path("car/gocar/simple-unixfs.car").read_bytes()
    names = [
        f"{folder}/{n}/{letter}.txt"
        for folder, n, letter in zip("aaabbbccc", range(1, 10), "ABCDEFGHI", strict=True)
    ]
    contents = read(data)
    assert list(contents) == names
    assert {len(content) for content in contents.values()} == {4}
    assert len(read(data, by_cid=True)) == 22


@pytest.mark.parametrize("codec", [INDEX_SORTED, MULTIHASH_INDEX_SORTED])
@pytest.mark.parametrize("name", [*WRAPPED, "no_blocks"])
def test_indexes_are_written_as_cardex_writes_them(name: str, codec: int) -> None:
    kind = "IndexSorted" if codec == INDEX_SORTED else "MultihashIndexSorted"
    expected = (VECTORS / "cardex" / f"{name}.{kind}.idx").read_bytes()
    builder = IndexBuilder(codec, fully_indexed=True)  # cardex writes no other index
    if name != "no_blocks":
        for found in CarReader(vector(f"js/{name}.car")).sections():
            builder.add(found.cid, found.start)
    assert builder.size_bytes == len(expected)
    assert b"".join(builder.blocks()) == expected
    check_index_reads(expected)


@pytest.mark.parametrize(
    "name",
    with_fixtures(
        ["gocar/sample-wrapped-v2", *(f"js/{name}.{kind}" for name in WRAPPED for kind in ("v2", "v2fullyindexed"))]
    ),
)
def test_indexes_are_written_as_go_writes_them(name: str) -> None:
    archive = vector(f"{name}.car")
    reader = CarReader(archive)
    layout = reader.layout
    builder = IndexBuilder(fully_indexed=layout.fully_indexed)
    for found in reader.sections():
        builder.add(found.cid, found.start - layout.data_start)
    index = b"".join(builder.blocks())
    assert index == archive.read_at(layout.index_start or 0, archive.size_bytes)
    offsets = {found.start - layout.data_start for found in reader.sections()}
    assert {record.offset for record in reader.index()} <= offsets
    check_index_reads(index)


def check_index_reads(index: bytes) -> None:
    """Check that the entries of an index give the same index again."""
    codec = INDEX_SORTED if index[:2] == encode(INDEX_SORTED) else MULTIHASH_INDEX_SORTED
    builder = IndexBuilder(codec, fully_indexed=True)
    for code, digest, offset in read_index(BytesArchive(index), 0, len(index)):
        builder.add_digest(code or 0, digest, offset)
    assert b"".join(builder.blocks()) == index


@needs_fixtures
def test_an_index_of_an_older_kind_does_not_hinder_reading() -> None:
    archive = vector("ipld_spec/carv2-basic.car")
    assert len(list(CarReader(archive).entries())) == 5
    with pytest.raises(Unsupported):
        list(CarReader(archive).index())


def test_repeated_cid_is_one_entry_at_its_first_position() -> None:
    data = v1([], [A, B, A])
    entries = list(CAR.reader(BytesArchive(data)).entries())
    assert [entry.path for entry in entries] == [cid_to_text(A[0]), cid_to_text(B[0])]
    assert entries[0].start_byte == data.index(A[1])


def test_padding_and_an_index_beyond_understanding_change_nothing() -> None:
    for index in (b"", b"\x01nonsense", encode(MULTIHASH_INDEX_SORTED) + b"\xff" * 9):
        assert read(v2(GOOD, index, padding=1337)) == read(GOOD)


def test_a_section_of_size_zero_is_an_error_or_by_request_the_end() -> None:
    padded = GOOD + bytes(1000)
    assert "the section has the size 0" in str(refusal(padded))
    assert read(padded, zero_padding=True) == read(GOOD)


def test_a_block_that_is_damaged_is_refused_when_it_is_opened() -> None:
    data = GOOD.replace(b"second", b"secand")
    reader = CAR.reader(BytesArchive(data, "chunk-7"))
    first, second = reader.entries()
    assert b"".join(reader.open(first)) == A[1]
    with pytest.raises(Corrupt, match="does not match its CID") as caught:
        list(reader.open(second))
    assert (caught.value.chunk, caught.value.byte, caught.value.path) == ("chunk-7", second.start_byte, second.path)


def test_block_with_an_unknown_hash_is_readable_and_not_verifiable() -> None:
    odd = (cid(RAW, 0x1B, b"\x07" * 32), b"content")
    reader = CarReader(BytesArchive(v1([], [odd, A])))
    unknown, known = reader.entries()
    assert b"".join(reader.open(unknown)) == b"content"
    assert [reader.verifiable(unknown), reader.verifiable(known)] == [False, True]


@pytest.mark.parametrize(
    ("code", "digest"),
    [
        (0x12, hashlib.sha256(b"x").digest()),
        (0x13, hashlib.sha512(b"x").digest()),
        (0xB220, hashlib.blake2b(b"x", digest_size=32).digest()),
        (0x00, b"x"),
    ],
)
def test_hash_functions(code: int, digest: bytes) -> None:
    raw = cid(RAW, code, digest)
    assert block_matches(raw, b"x") is True
    assert block_matches(raw, b"y") is False
    assert cid_from_text(cid_to_text(raw)) == raw
    assert read(v1([raw], [(raw, b"x")])) == {cid_to_text(raw): b"x"}


def test_cids_as_people_write_them() -> None:
    digest = hashlib.sha256(b"").digest()
    assert cid_to_text(b"\x12\x20" + digest) == "QmdfTbBqBPQ7VNxZEYEj14VmRuZBkqFbiwReogJgS1zR1n"
    assert cid_to_text(cid(RAW, 0x12, digest)) == "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku"
    for text in (
        "",
        "b",
        "Qm",
        "Qm0",
        "z",
        "BAFKREI",
        "bafkrei=",
        "é",
        "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6",
        "Qm" + "1" * 99,
    ):
        assert cid_from_text(text) is None


ROOT = b"\x81\xd8\x2a\x58\x25\x00" + A[0]


def sized(body: bytes) -> bytes:
    return encode(len(body)) + body


HEADERS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "the size of its header"),
    "header of no bytes": (b"\0", "the header has 0 bytes"),
    "varint that never ends": (b"\xff" * 20, "more than nine bytes|longer than 9 bytes"),
    "varint with a needless byte": (b"\xbb\x00", "not in its shortest form"),
    "header too large": (encode(MAX_HEADER_BYTES + 1), "the header has 33,554,433 bytes"),
    "header beyond the end": (encode(100) + b"\xa2", "ends within its header"),
    "no map": (encode(1) + b"\x80", "expected a map"),
    "endless map": (encode(2) + b"\xbf\xff", "expected a map"),
    "no version": (sized(b"\xa1\x65roots" + ROOT), "no version"),
    "no roots": (sized(b"\xa1\x67version\x01"), "no roots"),
    "version twice": (sized(b"\xa2\x67version\x01\x67version\x01"), "unknown or repeated"),
    "unknown member": (sized(b"\xa2\x61x\x01\x67version\x01"), "unknown"),
    "roots of another kind": (sized(b"\xa2\x65roots\x01\x67version\x01"), "expected a list of roots"),
    "root that is no CID": (
        sized(b"\xa2\x65roots\x81\xd8\x2a\x42\x00\x01\x67version\x01"),
        "a root is not a valid CID",
    ),
    "another tag": (sized(b"\xa2\x65roots\x81\xd8\x2b\x41\x00\x67version\x01"), "a tag other than"),
    "roots without end": (sized(b"\xa2\x65roots\x9b" + b"\x7f" * 8), "roots, but at most"),
    "more behind it": (sized(b"\xa2\x65roots\x80\x67version\x01\x00"), "more bytes after its map"),
    "version 3": (header(version=3), "version 3"),
    "a v2 of nothing": (PRAGMA, "its header of 51"),
    "no data": (PRAGMA + struct.pack("<16sQQQ", b"", 51, 0, 0), "the archive has no data"),
    "data within the header": (PRAGMA + struct.pack("<16sQQQ", b"", 50, 9, 0) + bytes(9), "but the header has 51"),
    "data beyond the end": (PRAGMA + struct.pack("<16sQQQ", b"", 51, 9, 0), "should end at byte 60"),
    "a place exceeds 2.63": (PRAGMA + struct.pack("<16sQQQ", b"", 51, 9, 1 << 63) + bytes(9), "exceeds 2.63"),
}


@pytest.mark.parametrize("name", sorted(HEADERS))
def test_headers_that_cannot_be_are_refused(name: str) -> None:
    data, message = HEADERS[name]
    with pytest.raises((Corrupt, Unsupported), match=message):
        CAR.reader(BytesArchive(data))


SECTIONS: dict[str, tuple[bytes, str]] = {
    "cut varint": (b"\x80", "end within a varint"),
    "too large": (encode(MAX_SECTION_BYTES + 1) + A[0], "the section has 8,388,609 bytes"),
    "beyond the end": (encode(100) + A[0] + b"x", "exceeds the data"),
    "cut CID": (encode(36) + A[0][:20], "ends within a CID"),
    "smaller than its CID": (encode(20) + A[0] + b"x" * 9, "the CID ends after its section"),
    "CID of version 2": (encode(9) + b"\x02\x55\x12\x05hello", "a CID has the unknown version 2"),
    "CID too large": (encode(5000) + b"\x01\x55\x12" + encode(4000) + bytes(5000), "larger than 2,048 bytes"),
}


@pytest.mark.parametrize("name", sorted(SECTIONS))
def test_invalid_sections_are_refused_with_their_position(name: str) -> None:
    data, message = SECTIONS[name]
    error = refusal(GOOD + data)
    assert message in str(error)
    assert error.byte == len(GOOD)


def test_a_block_is_checked_with_one_read_and_large_blocks_are_not_read_to_list_them() -> None:
    large = [leaf(bytes([n]) * (3 << 20)) for n in range(5)]
    archive = BytesArchive(v1([], [*large, A]))
    reader = CAR.reader(archive)
    entries = list(reader.entries())
    assert sum(end - start for start, end in archive.reads) < 3 << 20
    archive.reads.clear()
    assert b"".join(reader.open(entries[-1])) == A[1]
    assert len(archive.reads) == 1
    assert max(map(len, reader.open(entries[0]))) == 1 << 20


def test_small_sections_are_read_in_windows() -> None:
    blocks = [leaf(b"%d" % n) for n in range(20_000)]
    archive = BytesArchive(v1([], blocks))
    assert len(list(CAR.reader(archive).entries())) == 20_000
    assert len(archive.reads) < 5


@pytest.mark.parametrize("padding", [0, 4038, 4040, 4045, 5000])
def test_the_head_is_read_at_once_unless_padding_stands_in_it(padding: int) -> None:
    archive = BytesArchive(v2(GOOD, padding=padding))
    assert CarReader(archive).layout.roots == (A[0],)
    assert len(archive.reads) == 1 + (padding > 3900)


def test_an_entry_that_is_no_block_is_refused() -> None:
    reader = CAR.reader(BytesArchive(GOOD))
    entry = next(reader.entries())
    for start, end in ((0, 5), (entry.start_byte + 1, entry.end_byte), (entry.start_byte, entry.end_byte - 1)):
        with pytest.raises(Corrupt, match="not a block of a CAR"):
            list(reader.open(entry._replace(start_byte=start, end_byte=end)))


def test_roots_that_are_not_a_tree_give_blocks() -> None:
    tree = directory((b"a", A[0]))
    for roots in ([], [A[0]], [tree[0], A[0]], [cid_of(b"elsewhere", DAG_PB)]):
        assert len(read(v1(roots, [A, tree]))) == 2
    no_unixfs = (cid_of(b"", DAG_PB), b"")
    assert list(read(v1([no_unixfs[0]], [no_unixfs]))) == [cid_to_text(no_unixfs[0])]
    assert read(v1([tree[0]], [A, tree])) == {"a": A[1]}


def test_sniffing() -> None:
    assert CAR.sniff(GOOD[:64], b"")
    assert CAR.sniff(v2(GOOD)[:64], b"")
    assert CAR.sniff(header(*[A[0]] * 200)[:64], b"")
    for other in (b"", b"PK\x03\x04", b"hello roots version", b"\xa2\x65roots", cbor(5, 2)):
        assert not CAR.sniff(other, b"")


def test_an_index_that_cannot_be_is_refused() -> None:
    good = b"".join(IndexBuilder().blocks())
    head = encode(MULTIHASH_INDEX_SORTED)
    for index in (
        b"",
        b"\xff" * 9,
        good[:3],
        head + struct.pack("<i", -1),
        head + struct.pack("<iQi", 1, 0x12, 1) + struct.pack("<IQ", 7, 70),
        head + struct.pack("<iQi", 1, 0x12, 1) + struct.pack("<IQ", 40, 41) + bytes(41),
        head + struct.pack("<iQi", 1, 0x12, 1) + struct.pack("<IQ", 40, 80) + bytes(40),
        head + struct.pack("<iQi", 1, 0x12, 70_000),
    ):
        with pytest.raises(Corrupt):
            list(read_index(BytesArchive(index), 0, len(index)))


def test_index_keeps_duplicate_digests_and_offsets() -> None:
    builder = IndexBuilder()
    for offset in (300, 2, 255):
        builder.add(A[0], offset)
    builder.add(cid(RAW, 0, b"identity"), 9)
    index = b"".join(builder.blocks())
    assert [record.offset for record in read_index(BytesArchive(index), 0, len(index))] == [2, 255, 300]


@pytest.mark.parametrize("window_bytes", [*range(45, 60), 100, 1 << 20])
def test_section_reading_does_not_depend_on_the_window(window_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = [bytes([n % 251]) * (n * 37 % 500) for n in range(100)]
    blocks = [leaf(content) for content in contents]
    blocks[::3] = [(b"\x12\x20" + raw[4:], content) for raw, content in blocks[::3]]
    blocks[1::3] = [(cid(RAW, 0xB220, raw[4:]), content) for raw, content in blocks[1::3]]
    data = v1([], blocks)
    monkeypatch.setattr("cafcat.formats.car.sections._WINDOW_BYTES", window_bytes)
    reader = CarReader(BytesArchive(data))
    sections = list(reader.sections())
    assert [data[found.start : found.data_end] for found in sections] == [section(*block) for block in blocks]


@pytest.mark.parametrize("stream_bytes", [1, 7, 1000])
def test_sections_of_a_stream_do_not_depend_on_its_blocks(stream_bytes: int) -> None:
    blocks = [leaf(b"%d" % n * n) for n in range(60)]
    data = b"".join(section(*block) for block in blocks)
    stream = (data[at : at + stream_bytes] for at in range(0, len(data), stream_bytes))
    assert list(SectionStream(stream)) == blocks


@pytest.mark.parametrize("copies", [1, 500])
def test_a_table_finds_the_first_of_blocks_that_come_often(copies: int) -> None:
    others = [leaf(b"%d" % n) for n in range(1000)]
    data = v1([], [*others[:500], *[A] * copies, *others[500:]])
    reader = CarReader(BytesArchive(data))
    table = BlockTable(BytesArchive(data), reader.sections())
    for raw, content in [A, *others]:
        place = table.find(raw)
        assert place is not None
        assert data[place.data_start : place.data_end] == content
        assert place.start == data.index(section(raw, content))
    assert table.find(B[0]) is None
