"""The worked example in docs/formats/car.md equals the output of the writer."""

import re
from pathlib import Path

from cafcat.formats.car import CAR, CarReader
from cafcat.testing.formats import BytesArchive, pack

PAGE = Path(__file__).parents[2] / "docs" / "formats" / "car.md"


def test_hex_dump_equals_the_output_of_the_writer() -> None:
    rows = re.findall(r"^[0-9a-f]{8}  ((?:[0-9a-f]{2} ?| )+)\|", PAGE.read_text(), flags=re.MULTILINE)
    data, (entry,), finished = pack(CAR, [("hello.txt", b"hello\n", 1_700_000_000_000_000_000)])
    assert bytes.fromhex("".join(rows)) == data
    reader = CarReader(BytesArchive(data))
    starts = [section.start for section in reader.sections()]
    places = (*starts, entry.start_byte, finished.index_start_byte, reader.layout.index_start)
    assert places == (110, 153, 147, 247, 442)
    for place in places:
        assert f" {place}" in PAGE.read_text()
