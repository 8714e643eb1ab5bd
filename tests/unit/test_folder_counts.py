"""Folders of a chunk are counted while files come in path order."""

import struct
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from cafcat.catalog.binary_copy import HEADER, TRAILER
from cafcat.catalog.files.mapping import Mapping
from cafcat.model import Entry

PATHS = st.lists(st.text("ab/ü", min_size=1, max_size=8), unique=True, max_size=40)


def decoded(stream: bytes) -> dict[str, tuple[int, int, int]]:
    """Return files, bytes and depth of each folder of a COPY stream."""
    assert stream.startswith(HEADER)
    assert stream.endswith(TRAILER)
    rows, at = {}, len(HEADER)
    while at < len(stream) - len(TRAILER):
        _, _, files, _, size, _, depth, length = struct.unpack_from(">hiqiqiii", stream, at)
        at += struct.calcsize(">hiqiqiii")
        path = stream[at : at + length].decode()
        assert path not in rows
        rows[path] = (files, size, depth)
        at += length
    return rows


@given(PATHS, st.integers(1, 5))
def test_totals_equal_a_count_of_all_paths(paths: list[str], batch: int) -> None:
    entries = [Entry(path, 0, len(path), 1, None) for path in sorted(paths, key=str.encode)]
    files, sizes = Counter[str](), Counter[str]()
    for entry in entries:
        parts = entry.path.split("/")[:-1]
        for depth in range(len(parts) + 1):
            folder = "".join(f"{part}/" for part in parts[:depth])
            files[folder] += 1
            sizes[folder] += entry.end_byte
    expected = {folder: (count, sizes[folder], folder.count("/")) for folder, count in files.items()}
    with Mapping(1) as mapping:
        for first in range(0, len(entries), batch):
            some = entries[first : first + batch]
            mapping.add_all(some, [None] * len(some))
        assert mapping.ascending
        for _ in range(2):  # a commit that is tried again sends the same rows
            assert decoded(b"".join(mapping.folders.blocks())) == (expected or {"": (0, 0, 0)})
