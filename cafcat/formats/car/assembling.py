"""Putting files together from the blocks of their DAG."""

from collections.abc import Callable, Iterator
from typing import Final

from cafcat.errors import Corrupt, Unsupported
from cafcat.formats.car import dag_pb, unixfs
from cafcat.formats.car.blocks import multihash_of
from cafcat.formats.car.cid import DAG_PB, IDENTITY, is_block_of, parse, text_of, try_text
from cafcat.formats.car.manifest import SECTIONS
from cafcat.formats.car.sections import SectionStream
from cafcat.model import Entry
from cafcat.support.spool import Spool

__all__ = ["BROKEN", "DAG", "INLINE", "SYMLINK", "Fetch", "content_of", "decode", "gather", "pieces"]

SYMLINK: Final = "symlink"
"""One section; the content is the target's path, in UTF-8 as it stands."""
DAG: Final = "dag "
"""And the CID of the root: the blocks stand in any order, perhaps with others between them."""
INLINE: Final = "inline "
"""And a CID of the identity function, which holds the whole file; it stands in the span, a directory's node."""
BROKEN: Final = "broken "
"""And the CID of a block that is missing, or not what it should be."""

MAX_DEPTH: Final = 64
"""Levels of nodes that a file may have; with 1024 links each, four hold more than any archive."""
MAX_BLOCKS: Final = 1 << 20
"""So many blocks may stand in the span of a file whose blocks are not in order."""
_MEMORY_BYTES: Final = 64 << 20
_BLOCK_BYTES: Final = 1 << 20
_FREE_STEPS: Final = 20_000

Fetch = Callable[[bytes], bytes | None]
"""The block of a CID, checked; None if it is not there."""


def pieces(block: bytes) -> Iterator[bytes]:
    """The block in pieces of at most 1 MiB."""
    if 0 < len(block) <= _BLOCK_BYTES:
        yield block
        return
    for at in range(0, len(block), _BLOCK_BYTES):
        yield block[at : at + _BLOCK_BYTES]


def content_of(cid: bytes, block: bytes) -> bytes:
    """The bytes of a file, or of a symlink's target, that stand in a block itself. Raises ValueError."""
    if parse(cid).codec != DAG_PB:
        return block
    data = dag_pb.decode(block).data
    if data is None:
        raise ValueError("a node without data")
    node = unixfs.decode(data)
    if node.kind not in (unixfs.Kind.RAW, unixfs.Kind.FILE, unixfs.Kind.SYMLINK):
        raise ValueError(f"a node of a {node.kind.name.lower()} within a file")
    return node.data


def decode(span: Iterator[bytes], entry: Entry) -> Iterator[bytes]:
    """The content of an entry, in blocks of at most 1 MiB, from the bytes of its span alone.

    Every block is checked against its hash. Memory: a section of at most 8 MiB; where the blocks are not in order,
    64 MiB of them, the others in a temporary file. Raises Corrupt; Unsupported if that are more than a million
    blocks; TemporaryFileFailed.
    """
    decoding = entry.decoding or ""
    try:
        yield from _sized(_content(span, entry, decoding), entry)
    except ValueError as error:
        raise Corrupt(
            f"the file cannot be put together: {error}", path=entry.path, byte=entry.start_byte
        ) from error


def _content(span: Iterator[bytes], entry: Entry, decoding: str) -> Iterator[bytes]:
    if decoding in (SECTIONS, SYMLINK):
        for cid, block in SectionStream(span):
            yield from pieces(content_of(cid, checked(cid, block)))
    elif decoding.startswith(DAG):
        with Spool("blocks of a file", _MEMORY_BYTES) as spool:
            root = _cid_of(decoding, DAG)
            yield from gather(_Held(spool, span).fetch, root, entry.end_byte - entry.start_byte)
    elif decoding.startswith(INLINE):
        cid = _cid_of(decoding, INLINE)
        if cid not in b"".join(span):
            raise ValueError("the node that should hold it does not")
        yield from pieces(content_of(cid, parse(cid).digest))
    elif decoding.startswith(BROKEN):
        raise ValueError(f"block {decoding.removeprefix(BROKEN)} is missing or damaged")
    else:
        raise Unsupported(f"CAR has no content that is encoded as {decoding!r}", path=entry.path)


def _cid_of(decoding: str, word: str) -> bytes:
    cid = try_text(decoding.removeprefix(word))
    if cid is None:
        raise ValueError(f"{decoding[:80]!r} names no CID")
    return cid


def _sized(content: Iterator[bytes], entry: Entry) -> Iterator[bytes]:
    """The same, if it has as many bytes as the entry says. Raises ValueError."""
    count = 0
    for block in content:
        count += len(block)
        if count > entry.size_bytes:
            raise ValueError(f"its blocks have more bytes than the {entry.size_bytes:,} that it should have")
        yield block
    if count < entry.size_bytes:
        raise ValueError(f"its blocks have {count:,} bytes, it should have {entry.size_bytes:,}")


def checked(cid: bytes, block: bytes) -> bytes:
    """The block, unless its hash is another. Raises ValueError."""
    if is_block_of(cid, block) is False:
        raise ValueError(f"the block is not the one of its CID {text_of(cid)}")
    return block


def gather(fetch: Fetch, root: bytes, span_bytes: int) -> Iterator[bytes]:
    """The content of a file's DAG from its root, in blocks of at most 1 MiB. Raises ValueError where a block is
    missing, for more than 64 levels, or for more links than a span of that size accounts for."""
    steps = _FREE_STEPS + span_bytes // 4
    waiting: list[Iterator[bytes]] = [iter((root,))]
    while waiting:
        cid = next(waiting[-1], None)
        if cid is None:
            waiting.pop()
            continue
        steps -= 1
        if steps < 0 or len(waiting) > MAX_DEPTH:
            raise ValueError("it has more links, or more levels, than can be true")
        block = parse(cid).digest if parse(cid).code == IDENTITY else fetch(cid)
        if block is None:
            raise ValueError(f"block {text_of(cid)} is missing")
        yield from pieces(content_of(cid, block))
        if parse(cid).codec == DAG_PB:
            waiting.append(link.cid for link in dag_pb.decode(block).links)


class _Held:
    """The blocks of a span, to be fetched in any order."""

    def __init__(self, spool: Spool, span: Iterator[bytes]) -> None:
        self._spool = spool
        self._places: dict[bytes, tuple[int, int]] = {}
        end = 0
        for cid, block in SectionStream(span):
            if len(self._places) >= MAX_BLOCKS:
                raise Unsupported(f"more than {MAX_BLOCKS:,} blocks, not in order: the file is not put together")
            if self._places.setdefault(multihash_of(cid), (end, len(block))) == (end, len(block)):
                spool.write(block)
                end += len(block)

    def fetch(self, cid: bytes) -> bytes | None:
        place = self._places.get(multihash_of(cid))
        if place is None:
            return None
        self._spool.seek(place[0])
        return checked(cid, self._spool.read(place[1]))
