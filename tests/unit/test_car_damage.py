"""CARs that are cut, padded, concatenated, or have hash functions that cafcat does not check."""

import hashlib
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cafcat.errors import Corrupt
from cafcat.formats.base import Remark
from cafcat.formats.car import CAR, CarReader, cid
from cafcat.formats.car.cid import BLAKE3, DAG_PB, RAW, block_matches, cid_to_text
from cafcat.formats.format_choice import FormatChoice
from cafcat.model import Entry
from cafcat.testing.formats import BytesArchive, pack
from tests.worlds.archives.car_archives import Block, cid_of, directory, leaf, v1, v2
from tests.worlds.archives.car_archives import cid as cid_with

LEAVES = [leaf(b"block %d" % n * 10) for n in range(5)]
TREE = directory(*((b"file%d" % n, LEAVES[n][0]) for n in range(5)))
ROOT_FIRST = v1([TREE[0]], [TREE, *LEAVES])
ROOT_LAST = v1([TREE[0]], [*LEAVES, TREE])
NO_ROOT = v1([], LEAVES)
SHA1 = 0x11
KECCAK = 0x1B


def listed(data: bytes, *, zero_padding: bool = False) -> tuple[list[str], Corrupt | None]:
    """Return the names that an archive lists, and the error that ends the list, if any."""
    archive = BytesArchive(data)
    names: list[str] = []
    try:
        for entry in FormatChoice(zero_padding=zero_padding).format_of(archive).reader(archive).entries():
            names.append(entry.path)
    except Corrupt as error:
        return names, error
    return names, None


def cids(count: int = 5) -> list[str]:
    return [cid_to_text(found) for found, _ in LEAVES[:count]]


def test_the_blocks_before_a_cut_are_listed_and_the_damage_is_reported() -> None:
    names, error = listed(NO_ROOT[:-1])
    assert names == cids(4)
    assert error is not None
    assert "exceeds the data" in error.message
    assert error.byte == len(v1([], LEAVES[:4]))


def test_the_files_of_a_tree_whose_blocks_are_before_a_cut_are_listed() -> None:
    names, error = listed(ROOT_FIRST[:-1])
    assert names == ["file0", "file1", "file2", "file3"]
    assert error is not None


def test_blocks_are_listed_where_the_root_of_the_tree_is_cut_off() -> None:
    names, error = listed(ROOT_LAST[:-1])
    assert names == cids()
    assert error is not None


@pytest.mark.parametrize("data", [NO_ROOT, ROOT_FIRST, v2(ROOT_FIRST, b"\x80\x08" + bytes(8), 7)])
def test_truncated_archive_lists_only_whole_files(data: bytes) -> None:
    complete, _ = listed(data)
    for size_bytes in range(len(data)):
        try:
            reader = CAR.reader(BytesArchive(data[:size_bytes]))
        except Corrupt:
            continue  # the header is incomplete
        entries: list[Entry] = []
        with_contents = (entry for entry in taken(reader.entries(), entries))
        for entry in with_contents:
            if not (entry.decoding or "").startswith("broken"):
                assert b"".join(reader.open(entry))
        assert {entry.path for entry in entries} <= {*complete, *cids(), cid_to_text(TREE[0])}


def taken(entries: Iterator[Entry], into: list[Entry]) -> Iterator[Entry]:
    """Yield the entries before the damage."""
    try:
        for entry in entries:
            into.append(entry)
            yield entry
    except Corrupt:
        return


@pytest.mark.parametrize("cut_bytes", [1, 20, 60])
def test_version_2_with_a_truncated_payload_lists_whole_blocks(cut_bytes: int) -> None:
    names, error = listed(v2(NO_ROOT)[:-cut_bytes])
    assert names == cids(4)
    assert error is not None
    assert "the end of the archive is missing: the data should end at byte" in error.message


@pytest.mark.parametrize("cut_bytes", [1, 100, 250])
def test_own_archive_truncated_after_its_payload_lists_all_files(cut_bytes: int) -> None:
    data, entries, _ = pack(CAR, [(f"folder/{n}", b"content", n) for n in range(20)])
    names, error = listed(data[:-cut_bytes])
    assert sorted(names) == sorted(entry.path for entry in entries)
    assert error is not None


def test_version_2_without_its_index_is_reported() -> None:
    data = bytearray(v2(NO_ROOT))
    struct.pack_into("<Q", data, 43, len(data))
    names, error = listed(bytes(data))
    assert names == cids()
    assert error is not None
    assert "the index should begin at byte" in error.message


@pytest.mark.parametrize("data", [NO_ROOT, ROOT_FIRST])
@pytest.mark.parametrize("padding", [1, 127, 2_000_000])
def test_zero_padding_is_damage_unless_it_is_allowed(data: bytes, padding: int) -> None:
    complete, _ = listed(data)
    names, error = listed(data + bytes(padding))
    assert names == complete
    assert error is not None
    assert (error.byte, error.hint) == (
        len(data),
        "if the archive is padded with zeros, use --zero-padding to end it here",
    )
    assert listed(data + bytes(padding), zero_padding=True) == (complete, None)


def test_bytes_after_zero_padding_are_ignored_as_by_go_car() -> None:
    assert listed(NO_ROOT + b"\0" + b"anything", zero_padding=True) == (cids(), None)


@pytest.mark.parametrize("second", [ROOT_LAST, v2(ROOT_LAST)])
def test_a_concatenated_archive_names_the_roots_that_the_header_does_not(second: bytes) -> None:
    first = v1([], LEAVES[:2])
    names, error = listed(first + second)
    assert names == cids(2)
    assert error is not None
    assert f"another CAR begins here, whose roots ({cid_to_text(TREE[0])}) are missing from the header" in str(
        error
    )
    assert error.byte == len(first)


def remarks(data: bytes) -> list[Remark]:
    reader = CarReader(BytesArchive(data))
    for _ in reader.entries():
        pass
    return list(reader.remarks())


def test_a_second_tree_that_the_header_does_not_name_is_counted() -> None:
    others = [leaf(b"other %d" % n) for n in range(3)]
    second = directory(*((b"other%d" % n, others[n][0]) for n in range(3)))
    blocks = [*LEAVES, TREE, LEAVES[0], *others, second, others[0]]
    [remark] = remarks(v1([TREE[0]], blocks))
    assert (remark.kind, remark.blocks) == ("not_in_tree", 4)
    assert (
        f"4 blocks belong to no file of the tree that the header names; the first is {cid_to_text(others[0][0])}"
        in (remark.message)
    )
    assert remarks(v1([TREE[0], second[0]], blocks)) == []  # the blocks themselves are listed
    assert remarks(ROOT_FIRST) == []


def with_hash(code: int, data: bytes, digest: bytes, codec: int = RAW) -> Block:
    return cid_with(codec, code, digest), data


def test_blocks_with_unknown_hash_functions_are_counted_by_function() -> None:
    blocks = [*LEAVES, with_hash(SHA1, b"a", bytes(20)), with_hash(KECCAK, b"b", bytes(32))]
    blocks += [with_hash(KECCAK, b"c", bytes(32)), with_hash(0x300539, b"d", bytes(8))]
    data = v1([], blocks)
    expected = "cafcat cannot check the hashes of 4 blocks: SHA-1 (0x11), Keccak-256 (0x1b), 0x300539"
    assert remarks(data) == [Remark("unchecked_hash", 4, expected)]
    assert CarReader(BytesArchive(data)).remarks() == remarks(data)
    assert remarks(NO_ROOT) == []
    assert remarks(pack(CAR, [("a", b"1", 1)])[0]) == []


HASHES: dict[int, Callable[[bytes], bytes]] = {
    0x14: lambda data: hashlib.sha3_512(data).digest(),
    0x15: lambda data: hashlib.sha3_384(data).digest(),
    0x16: lambda data: hashlib.sha3_256(data).digest(),
    0x17: lambda data: hashlib.sha3_224(data).digest(),
    0x18: lambda data: hashlib.shake_128(data).digest(32),
    0x19: lambda data: hashlib.shake_256(data).digest(64),
    0xB260: lambda data: hashlib.blake2s(data).digest(),
    0xB250: lambda data: hashlib.blake2s(data, digest_size=16).digest(),
}


@pytest.mark.parametrize("code", HASHES)
def test_blocks_of_further_hash_functions_are_checked(code: int) -> None:
    check_hash(code, HASHES[code](b"content"))


def test_blocks_of_blake3_are_checked() -> None:
    pytest.importorskip("blake3")
    # b3sum of the seven bytes "content"
    digest = bytes.fromhex("3fba5250be9ac259c56e7250c526bc83bacb4be825f2799d3d59e5b4878dd74e")
    check_hash(BLAKE3, digest)


def check_hash(code: int, digest: bytes) -> None:
    good, bad = with_hash(code, b"content", digest), with_hash(code, b"contend", digest)
    assert block_matches(*good) is True
    assert block_matches(*bad) is False
    assert remarks(v1([], [good])) == []
    reader = CarReader(BytesArchive(v1([], [bad])))
    [entry] = reader.entries()
    with pytest.raises(Corrupt, match="does not match its CID"):
        list(reader.open(entry))


def test_without_the_extra_blocks_of_blake3_are_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cid, "_blake3", lambda: None)
    [remark] = remarks(v1([], [with_hash(BLAKE3, b"content", bytes(32))]))
    assert remark.blocks == 1
    assert remark.message.endswith("BLAKE3 (0x1e); for BLAKE3: pip install '.[blake3]' in a clone of cafcat")


def test_nodes_of_a_tree_with_an_unchecked_hash_are_counted(tmp_path: Path) -> None:
    part = with_hash(SHA1, b"a", bytes(20))
    _, node = directory((b"a", part[0]), (b"b", LEAVES[0][0]))
    root = with_hash(SHA1, node, bytes(20), DAG_PB)
    assert cid_of(node, DAG_PB) != root[0]
    [remark] = remarks(v1([root[0]], [root, part, LEAVES[0]]))
    assert (remark.kind, remark.blocks) == ("unchecked_hash", 2)
