"""The sink of a chunk: blocks to a store, and a checksum that is right even if the first bytes change later."""

from pathlib import Path

import pytest

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
