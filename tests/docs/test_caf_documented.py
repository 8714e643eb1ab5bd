"""The worked example in docs/formats/caf.md equals the output of the writer."""

import re
from pathlib import Path

from cafcat.formats.caf.format import CAF
from cafcat.testing.formats import pack

PAGE = Path(__file__).parents[2] / "docs" / "formats" / "caf.md"


def test_hex_dump_equals_the_output_of_the_writer() -> None:
    rows = re.findall(r"^[0-9a-f]{8}  ((?:[0-9a-f]{2} ?| )+)\|", PAGE.read_text(), flags=re.MULTILINE)
    data, _, finished = pack(CAF, [("hello.txt", b"hello\n", 1_700_000_000_000_000_000), ("ü", b"", None)])
    assert bytes.fromhex("".join(rows)) == data
    assert "begins at byte 6 and has 0xc9 = 201 bytes" in PAGE.read_text()
    assert (finished.index_start_byte, finished.index_end_byte - finished.index_start_byte) == (6, 201)
