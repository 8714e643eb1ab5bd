"""Assembles the files of a CAR from the blocks of their DAG, and defines the values of `Entry.decoding` in CARs."""

from collections.abc import Iterator
from typing import Final

from cafcat.errors import Corrupt, Unsupported
from cafcat.formats.car import dag_pb, unixfs
from cafcat.formats.car.blocks import BlockTable, multihash_of
from cafcat.formats.car.cid import DAG_PB, IDENTITY, block_matches, cid_from_text, cid_to_text, parse
from cafcat.formats.car.manifest import SECTIONS
from cafcat.formats.car.sections import SectionStream
from cafcat.model import Entry
from cafcat.support.spool import Spool

__all__ = ["BROKEN", "DAG", "INLINE", "SYMLINK", "assemble", "block_content", "decode", "split"]

SYMLINK: Final = "symlink"
"""Decoding of a symlink. The span is one section; the content is the target path, unchanged."""
DAG: Final = "dag "
"""Decoding of a file whose blocks are in any order in the span, perhaps among other blocks. The CID of the file's
root follows this prefix."""
INLINE: Final = "inline "
"""Decoding of a file or symlink whose CID is an identity CID, which contains the content. The CID follows this
prefix. The span is the block of the directory node that links to the CID."""
BROKEN: Final = "broken "
"""Decoding of a file that cannot be read. The CID of the missing or damaged block follows this prefix."""

MAX_DEPTH: Final = 64
"""Largest number of node levels in a file. With 1024 links per node, four levels exceed any archive."""
MAX_BLOCKS: Final = 1 << 20
"""Largest number of distinct blocks in the span of a file with the decoding DAG."""
_MEMORY_BYTES: Final = 64 << 20
"""If the blocks in a span are larger in total, in bytes, they spill to a temporary file."""
_BLOCK_BYTES: Final = 1 << 20
_FREE_STEPS: Final = 20_000
"""Number of links that are followed in a file of any size, in addition to one for each four bytes of its span."""


def split(block: bytes) -> Iterator[bytes]:
    """Yield the bytes of a block in pieces of at most 1 MiB."""
    if 0 < len(block) <= _BLOCK_BYTES:
        yield block
        return
    for offset in range(0, len(block), _BLOCK_BYTES):
        yield block[offset : offset + _BLOCK_BYTES]


def block_content(cid: bytes, block: bytes) -> bytes:
    """Return the file content, or the symlink target, that a block itself contains, without its linked blocks.

    A block that is not a DAG-PB node is returned as a whole.

    Raises:
        ValueError: the block is not a valid node of a file or symlink.
    """
    if parse(cid).codec != DAG_PB:
        return block
    data = dag_pb.decode(block).data
    if data is None:
        raise ValueError("a node has no data")
    node = unixfs.decode(data)
    if node.kind not in (unixfs.Kind.RAW, unixfs.Kind.FILE, unixfs.Kind.SYMLINK):
        raise ValueError(f"a node within the file has the wrong type {node.kind.name.lower()}")
    return node.data


def decode(span: Iterator[bytes], entry: Entry) -> Iterator[bytes]:
    """Yield the content of a CAR entry in blocks of at most 1 MiB, from the bytes of its span alone.

    Every block of the file is checked against its hash, if cafcat can compute its hash function.

    Memory: a section of at most 8 MiB. With the decoding DAG also 64 MiB of blocks, which are in a temporary file
    if there are more, and some 230 bytes for each distinct block in the span.

    Raises:
        Corrupt: a block is missing or damaged, the span is invalid, or the content does not have the size in the
            entry.
        Unsupported: the decoding is unknown. Or it is DAG, and the span has more than 1,048,576 distinct blocks.
        TemporaryFileFailed: the decoding is DAG, and the temporary file failed.
    """
    decoding = entry.decoding or ""
    try:
        yield from _check_size(_content(span, entry, decoding), entry)
    except ValueError as error:
        raise Corrupt(
            f"the file cannot be assembled from its blocks: {error}", path=entry.path, byte=entry.start_byte
        ) from error


def _content(span: Iterator[bytes], entry: Entry, decoding: str) -> Iterator[bytes]:
    if decoding in (SECTIONS, SYMLINK):
        for cid, block in SectionStream(span):
            yield from split(block_content(cid, verified(cid, block)))
    elif decoding.startswith(DAG):
        with Spool("blocks of a file", _MEMORY_BYTES) as spool:
            root = _cid_of(decoding, DAG)
            yield from assemble(_BufferedBlocks(spool, span), root, entry.end_byte - entry.start_byte)
    elif decoding.startswith(INLINE):
        cid = _cid_of(decoding, INLINE)
        if cid not in b"".join(span):
            raise ValueError("the directory node does not contain the CID of the file")
        yield from split(block_content(cid, parse(cid).digest))
    elif decoding.startswith(BROKEN):
        raise ValueError(f"block {decoding.removeprefix(BROKEN)} is missing or damaged")
    else:
        raise Unsupported(f"unknown decoding of a CAR entry: {decoding!r}", path=entry.path)


def _cid_of(decoding: str, prefix: str) -> bytes:
    cid = cid_from_text(decoding.removeprefix(prefix))
    if cid is None:
        raise ValueError(f"the decoding {decoding[:80]!r} has no valid CID")
    return cid


def _check_size(content: Iterator[bytes], entry: Entry) -> Iterator[bytes]:
    """Yield the blocks of `content` unchanged. Raise ValueError if their total size is not the entry's size."""
    count = 0
    for block in content:
        count += len(block)
        if count > entry.size_bytes:
            raise ValueError(f"the file should have {entry.size_bytes:,} bytes, but its blocks have more")
        yield block
    if count < entry.size_bytes:
        raise ValueError(f"the file should have {entry.size_bytes:,} bytes, but its blocks have {count:,}")


def verified(cid: bytes, block: bytes) -> bytes:
    """Return the block unchanged. Raises ValueError if it does not match the hash in its CID.

    A block whose hash function cafcat cannot compute is returned unchecked.
    """
    if block_matches(cid, block) is False:
        raise ValueError(f"the block does not match its CID {cid_to_text(cid)}")
    return block


def assemble(blocks: "BlockTable | _BufferedBlocks", root: bytes, span_bytes: int) -> Iterator[bytes]:
    """Yield the content of the file with this root, in pieces of at most 1 MiB.

    Args:
        blocks: finds the file's blocks by their CIDs.
        root: CID of the root of the file's DAG.
        span_bytes: size of the file's span in bytes. At most 20,000 links are followed, and one more for each four
            bytes of the span. A link counts each time it is followed.

    Raises:
        ValueError: a block is missing or invalid, the DAG has more than 64 levels, or more links have to be
            followed than `span_bytes` allows. Errors of `blocks.content` pass through.
    """
    steps = _FREE_STEPS + span_bytes // 4
    pending: list[Iterator[bytes]] = [iter((root,))]
    while pending:
        cid = next(pending[-1], None)
        if cid is None:
            pending.pop()
            continue
        steps -= 1
        if len(pending) > MAX_DEPTH:
            raise ValueError(f"the DAG of the file has more than {MAX_DEPTH} levels")
        if steps < 0:
            raise ValueError("the DAG of the file repeats more links than the size of its span allows")
        block = parse(cid).digest if parse(cid).hash_code == IDENTITY else blocks.content(cid)
        if block is None:
            raise ValueError(f"block {cid_to_text(cid)} is missing")
        yield from split(block_content(cid, block))
        if parse(cid).codec == DAG_PB:
            pending.append(link.cid for link in dag_pb.decode(block).links)


class _BufferedBlocks:
    """Stores the blocks of an entry's span in a spool (memory or temporary file), to read them in any order."""

    def __init__(self, spool: Spool, span: Iterator[bytes]) -> None:
        self._spool = spool
        self._spans: dict[bytes, tuple[int, int]] = {}
        end = 0
        for cid, block in SectionStream(span):
            if len(self._spans) >= MAX_BLOCKS:
                raise Unsupported(f"the file's blocks are scattered in a span of more than {MAX_BLOCKS:,} blocks")
            if self._spans.setdefault(multihash_of(cid), (end, len(block))) == (end, len(block)):
                spool.write(block)
                end += len(block)

    def content(self, cid: bytes) -> bytes | None:
        """Return the bytes of the block with this CID, or None if the span does not have it.

        Raises:
            ValueError: the block does not match its CID.
        """
        span = self._spans.get(multihash_of(cid))
        if span is None:
            return None
        self._spool.seek(span[0])
        return verified(cid, self._spool.read(span[1]))
