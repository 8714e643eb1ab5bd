"""The sink of a chunk: blocks to a store, and a checksum that is right even if the first bytes change later."""

from pathlib import Path

import pytest

from cafcat.sources.local.files import SMALL_BYTES
from cafcat.stores.base import HEAD_BYTES
from cafcat.stores.local.store import LocalStore
from cafcat.support.checksums import crc64nvme
from cafcat.writing.sink import BLOCK_BYTES, BlockSink


@pytest.mark.parametrize("first_bytes", [1, 110, HEAD_BYTES + 1])
@pytest.mark.parametrize("size_bytes", [110, HEAD_BYTES, BLOCK_BYTES - 1, BLOCK_BYTES, 2 * BLOCK_BYTES + 5])
@pytest.mark.parametrize("head", [b"", b"h", b"head" * 27])
def test_checksum_is_that_of_the_final_bytes(
    tmp_path: Path, first_bytes: int, size_bytes: int, head: bytes
) -> None:
    data = (bytes(range(251)) * (size_bytes // 251 + 1))[:size_bytes]
    upload = LocalStore(tmp_path).create("object", rewrites_head=True)
    sink = BlockSink(upload)
    sink.write(data[:first_bytes])
    sink.write(data[first_bytes:])
    if head:
        sink.rewrite_head(head)
    checksum = sink.finish()
    upload.commit(checksum)
    expected = head + data[len(head) :]
    assert (tmp_path / "object").read_bytes() == expected
    assert checksum == crc64nvme(expected)


@pytest.mark.parametrize("step_bytes", [1 << 20, SMALL_BYTES, BLOCK_BYTES, BLOCK_BYTES + SMALL_BYTES])
def test_bytes_after_a_full_block_begin_the_next_one(tmp_path: Path, step_bytes: int) -> None:
    data = (bytes(range(251)) * (5 * BLOCK_BYTES // 251))[: 5 * BLOCK_BYTES - 77]
    upload = LocalStore(tmp_path).create("object")
    sink = BlockSink(upload)
    position = 0
    while position < len(data):
        room = sink.room()
        assert len(room) > SMALL_BYTES
        part = data[position : position + min(step_bytes, len(room))]
        room[: len(part)] = part
        sink.filled(len(part))
        sink.write(data[position + len(part) : position + len(part) + 3])
        position += len(part) + 3
        assert sink.size_bytes == min(position, len(data))
    checksum = sink.finish()
    upload.commit(checksum)
    assert (tmp_path / "object").read_bytes() == data
    assert checksum == crc64nvme(data)
