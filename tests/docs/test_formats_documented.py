"""The worked examples in docs/formats equal the output of the writers."""

import re
from pathlib import Path

import msgpack

from cafcat.formats.chunkio import CHUNKIO
from cafcat.formats.clp.header import Header, parse_header
from cafcat.formats.clp.metadata import Annotation, Packet, pack_annotation, pack_packets, pack_section_table
from cafcat.formats.databundle import DATABUNDLE
from cafcat.testing.formats import pack

PAGES = Path(__file__).parents[2] / "docs" / "formats"
ROW = re.compile(r"^[0-9a-f]{8}  ((?:[0-9a-f]{2} ?| )+)\|", flags=re.MULTILINE)


def dumps(page: str) -> list[bytes]:
    blocks = (PAGES / page).read_text().split("```")[1::2]
    return [bytes.fromhex("".join(ROW.findall(block))) for block in blocks if ROW.search(block)]


def test_chunkio_dump_equals_the_output_of_the_writer() -> None:
    data, entries, finished = pack(
        CHUNKIO, [("hello.txt", b"hello\n", 1_700_000_000_000_000_000), ("ü", b"", None)]
    )
    assert dumps("chunkio.md") == [data]
    assert [entry[1:3] for entry in entries] == [(0, 62), (62, 102)]
    assert (finished.index_start_byte, finished.index_end_byte, finished.size_bytes) == (102, 347, 387)
    text = " ".join((PAGES / "chunkio.md").read_text().split())
    assert "the records [0, 62) and [62, 102), the index is [102, 347) with 205 bytes of text" in text


def test_databundle_dump_equals_the_output_of_the_writer() -> None:
    data, entries, finished = pack(
        DATABUNDLE, [("hello.txt", b"hello\n", 1_700_000_000_000_000_000), ("ü", b"", None)]
    )
    text = (PAGES / "databundle.md").read_text()
    shown = bytearray(len(data))
    for row in re.findall(r"^[0-9a-f]{8}  (?:(?:[0-9a-f]{2} ?| )+)\|", text, flags=re.MULTILINE):
        content = bytes.fromhex(row[8:-1])
        start = int(row[:8], 16)
        shown[start : start + len(content)] = content
    assert shown == data
    assert [entry[1:3] for entry in entries] == [(4096, 4110), (4110, 4110)]
    assert "The first span is [4096, 4110)" in text
    assert f"The table is [{finished.index_start_byte}, {finished.index_end_byte})" in text


def test_clp_dumps_equal_the_output_of_the_writer() -> None:
    head, metadata, noted = dumps("clp.md")
    assert (
        noted == pack_packets([pack_annotation(Annotation((0xE3069283,), ((5, 1_700_000_000_000_000_000),)))])[1:]
    )
    header = Header((0, 3, 1), 93, 242, 150)
    assert head == header.pack()
    assert parse_header(head, 242, "x") == header
    info = Packet(0, msgpack.packb({"num_segments": 1}))
    table = Packet(1, pack_section_table([("/schema_tree", 20), ("/var.dict", 8), ("/0", 0)]))
    ranges = Packet(3, msgpack.packb([{"e": 3, "f": {"_filename": "a.log"}, "s": 0}]))
    assert metadata == pack_packets([info, table, Packet(2, bytes(16)), ranges])
