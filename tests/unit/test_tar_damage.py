"""Damaged, truncated and hostile tar archives: every loss is reported, and memory is bounded."""

import bz2
import gzip
import io
import lzma
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import pytest

from cafcat.errors import SourceFailed
from cafcat.model import FileProblem, SourceFile
from cafcat.sources.tar.archive import is_tar, open_tar
from cafcat.sources.tar.file import TarFileSource
from cafcat.sources.tar.input import StreamInput, decompressed
from cafcat.sources.tar.members import Members
from cafcat.sources.tar.stream import TarStreamSource
from tests.worlds.archives.tar_archives import (
    END,
    MIB,
    ONE_FILE,
    PLAIN,
    extended,
    from_file,
    from_stream,
    header,
    padded,
    problems,
    record,
    resummed,
    taken,
    tar,
    the_end,
)
from tests.worlds.servers.services import missing_service

Opener = Callable[..., TarFileSource | TarStreamSource]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(params=[from_file, from_stream])
def open_archive(request: pytest.FixtureRequest) -> Opener:
    """A function that opens an archive: as a file and as a stream."""
    return request.param  # type: ignore[no-any-return]


# ---- damage ----


def test_an_archive_without_its_end_marker_may_be_cut(open_archive: Opener) -> None:
    assert the_end(open_archive(ONE_FILE)) == "the archive ends at byte 1,024 without an end marker: it may be cut"
    assert the_end(open_archive(ONE_FILE * 2)).startswith("the archive ends at byte 2,048")
    assert the_end(open_archive(ONE_FILE[:600])).startswith(
        "the archive is cut: it ends at byte 600, within a member up to byte 1,024"
    )
    assert taken(open_archive(ONE_FILE + bytes(512))) == [("a", b"A")]  # like GNU tar
    assert taken(open_archive(ONE_FILE + bytes(700))) == [("a", b"A")]


def test_empty_and_other_files_are_no_archives(open_archive: Opener) -> None:
    assert the_end(open_archive(b"")) == "the file is empty"
    assert the_end(open_archive(b"not a tar")).startswith(
        "the archive is cut: it ends at byte 9, within a header up to byte 512"
    )
    message = "there is no valid header at byte 0 (invalid header)"
    assert the_end(open_archive(b"not a tar" * 1000)).startswith(message)
    assert taken(open_archive(bytes(10240))) == []


def test_a_bad_header_ends_the_archive_but_not_in_silence(open_archive: Opener) -> None:
    data = bytearray(tar(("a", b"A"), ("b", b"B"), ("c", b"C")))
    data[1024 + 130] ^= 1
    source = open_archive(bytes(data))
    *files, problem = taken(source)
    assert files == [("a", b"A")]
    assert problem == (source.name, "corrupt")
    assert "at byte 1,024 (bad checksum)" in the_end(open_archive(bytes(data)))


def test_a_member_that_is_cut_is_not_given() -> None:
    data = tar(("a", b"A"), ("b", bytes(100_000)))
    for open_archive in (from_file, from_stream):
        message = the_end(open_archive(data[:50_000]))
        assert message == (
            "the archive is cut: it ends at byte 50,000, within the contents of a member up to byte 101,536"
        )
        assert taken(open_archive(data[:50_000]))[0] == ("a", b"A")


def test_a_large_member_that_is_cut_fails_when_it_is_read_and_when_not() -> None:
    data = tar(("large", bytes(3 * MIB)), ("b", b"B"))[: 2 * MIB]
    source = from_stream(data)
    items = source.files()
    large = next(items)
    assert isinstance(large, SourceFile)
    with source.open(large) as opened, pytest.raises(SourceFailed, match="the archive is cut") as caught:
        list(opened.blocks())
    assert (caught.value.problem, caught.value.path) == ("corrupt", "large")
    assert [(item.path, getattr(item, "kind", None)) for item in items] == [("stream", "corrupt")]
    assert "ends at byte 2,097,152" in the_end(from_stream(data))
    assert "ends at byte 2,097,152" in the_end(from_file(data))


def test_members_after_the_end_marker_are_not_lost_in_silence(open_archive: Opener) -> None:
    first, second = tar(("a", b"A")), tar(("b", b"B"))
    assert "from byte 10,240 on, and are not read" in the_end(open_archive(first + second))
    assert "from byte 4,194,304 on" in the_end(open_archive(first + bytes(4 * MIB - len(first)) + second))
    assert "from byte 1,536 on" in the_end(open_archive(ONE_FILE + bytes(512) + ONE_FILE + END))
    nameless = resummed(bytes(100) + ONE_FILE[100:512])
    assert "from byte 5,120 on" in the_end(open_archive(ONE_FILE + bytes(4096) + nameless + END))
    assert taken(open_archive(first + b"anything may follow" * 1000 + second)) == [("a", b"A")]


@pytest.mark.parametrize(
    "data",
    [
        extended(record(b"path", b"p")) + END,
        extended(record(b"path", b"p")),
        header("././@LongLink", 5, b"L") + padded(b"name\0") + END,
        extended(b"") + END,
        extended(b"no record"),
        extended(b"99 path=too long\n") + ONE_FILE + END,
        extended(b"9 path=a=\n") + ONE_FILE + END,
        extended(b"8 path=ab") + ONE_FILE + END,
        extended(b"8 path=a") + ONE_FILE + END,
        extended(b"7 path\n") + ONE_FILE + END,
        extended(b"4 =\n") + ONE_FILE + END,
        extended(b"-5 a=\n") + ONE_FILE + END,
        extended(b"0 a=\n") + ONE_FILE + END,
        extended(b"6 a=b\n7 c=d\n") + ONE_FILE + END,
        extended(record(b"size", b"-1")) + ONE_FILE + END,
        extended(record(b"size", b"one")) + ONE_FILE + END,
        extended(record(b"size", b"9" * 5_000)) + ONE_FILE + END,
        extended(record(b"size", b"1.0")) + ONE_FILE + END,
        header("a", -512, b"0") + ONE_FILE + END,
        header("x", -512, b"x") + ONE_FILE + END,
        resummed(ONE_FILE[:108] + b"not oct\0" + ONE_FILE[116:512]) + padded(b"A") + END,
        header("././@LongLink", 2 * MIB, b"L") + bytes(2 * MIB),
        header("././@LongLink", 2 * MIB, b"K") + bytes(2 * MIB),
        header("x", 2 * MIB, b"x") + bytes(2 * MIB),
        header("g", 2 * MIB, b"g") + bytes(2 * MIB),
        header("X", 2**60, b"X") + bytes(2 * MIB),
    ],
)
def test_headers_that_make_no_sense_are_damage(open_archive: Opener, data: bytes) -> None:
    assert the_end(open_archive(data))


class Endless(io.RawIOBase):
    """A stream that gives some bytes, then repeats others without end. It counts the bytes that are read."""

    def __init__(self, first: bytes, rest: bytes) -> None:
        self._stream = io.BytesIO(first)
        self._rest = rest
        self.taken_bytes = 0

    def read(self, size: int = -1) -> bytes:
        assert 0 < size <= MIB
        data = self._stream.read(size) or (self._rest * (size // len(self._rest) + 1))[:size]
        self.taken_bytes += len(data)
        return data


@pytest.mark.parametrize("kind", [b"L", b"K", b"x", b"g", b"X"])
def test_an_extended_header_without_end_is_not_read(kind: bytes) -> None:
    stream = Endless(header("a", 2**62, kind), b"1" * 512)
    assert "9,223" not in the_end(TarStreamSource(stream))  # type: ignore[arg-type]
    assert stream.taken_bytes < 2 * MIB


@pytest.mark.parametrize("kind", [b"x", b"g"])
def test_any_number_of_extended_headers_is_read_in_bounded_memory(kind: bytes) -> None:
    """tarfile reads them recursively, and keeps every record in memory."""

    def archive() -> Iterator[bytes]:
        for n in range(1_500):
            yield extended(record(b"path", b"p%d" % n) + record(b"key%d" % n, bytes(50_000)), kind)
        yield ONE_FILE + END

    tracemalloc.start()
    (member,) = Members(StreamInput(archive()))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert member.name == "p1499"
    assert peak_bytes < MIB


def test_records_of_digits_are_parsed_in_linear_time() -> None:
    """A pattern of tarfile in Python 3.11.7 needs quadratic time: a minute for this record."""
    data = extended(record(b"comment", b"1" * (MIB - 100))) + ONE_FILE + END
    assert taken(from_stream(data)) == [("a", b"A")]


# ---- compressed archives ----

COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": partial(lzma.compress, preset=0),
}
WHOLE = taken(from_stream(PLAIN))


@cache
def compressed_plain(name: str) -> bytes:
    """Return PLAIN, compressed by one of COMPRESSORS at its first use."""
    return COMPRESSORS[name](PLAIN)


@pytest.mark.parametrize("name", COMPRESSORS)
def test_compressed_archives_are_decompressed(name: str) -> None:
    assert taken(from_stream(compressed_plain(name))) == WHOLE
    Path("c").write_bytes(compressed_plain(name))
    source = open_tar("c")
    assert isinstance(source, TarStreamSource)
    assert (source.name, taken(source), taken(source)) == ("c", WHOLE, WHOLE)


@pytest.mark.parametrize("name", COMPRESSORS)
def test_concatenated_compressed_parts_are_read_and_garbage_is_ignored(name: str) -> None:
    compress = COMPRESSORS[name]
    parts = [compress(PLAIN[begin : begin + MIB]) for begin in range(0, len(PLAIN), MIB)]
    assert taken(from_stream(b"".join(parts))) == WHOLE
    assert taken(from_stream(bytes(8).join(parts) + bytes(9000))) == WHOLE
    assert taken(from_stream(b"".join(parts) + b"garbage" * 100)) == WHOLE
    assert the_end(from_stream(b"".join(parts[:-1]) + b"garbage" * 100)).startswith("the archive is cut")


@pytest.mark.parametrize("name", COMPRESSORS)
@pytest.mark.parametrize("left", [20, 1000, -1000, -5, -1])
def test_cut_compressed_data_is_damage(name: str, left: int) -> None:
    data = compressed_plain(name)[:left]
    assert "is cut: it ends too early" in the_end(from_stream(data))
    found = [problem for problem in problems(from_stream(data)) if problem.kind.is_failure]
    assert len(found) == 1


@pytest.mark.parametrize("name", COMPRESSORS)
def test_damaged_compressed_data_fails_the_member_that_is_read_and_ends_the_listing(name: str) -> None:
    data = bytearray(compressed_plain(name))
    for position in range(len(data) // 2, len(data) // 2 + 2000):
        data[position] ^= 0x55
    source = from_stream(bytes(data))
    items = source.files()
    assert [next(items).path] == ["a"]
    large = next(items, None)
    if isinstance(large, SourceFile):  # bzip2 detects the damage earlier
        with source.open(large) as opened, pytest.raises(SourceFailed, match="data is damaged") as caught:
            list(opened.blocks())
        assert (caught.value.problem, caught.value.path) == ("corrupt", "large")
        large = next(items)
    assert isinstance(large, FileProblem)
    assert (large.path, large.kind.value) == ("stream", "corrupt")
    assert "data is damaged" in large.message
    assert list(items) == []


def test_a_wrong_checksum_after_the_end_is_damage() -> None:
    data = bytearray(gzip.compress(tar(("a", b"A"))))
    data[-8] ^= 1
    assert the_end(from_stream(bytes(data))).endswith("incorrect data check")


@pytest.mark.parametrize("name", COMPRESSORS)
def test_decompression_comes_in_small_pieces(name: str) -> None:
    """100 MB of zeros are 100 kB of gzip data, and far less of the other formats."""
    compressed = COMPRESSORS[name](bytes(100_000_000))
    sizes = [len(piece) for piece in decompressed(iter([compressed]))]
    assert sum(sizes) == 100_000_000
    assert max(sizes) <= 256 << 10


def test_compressed_zeros_are_no_header() -> None:
    """The first 512 bytes compressed at this time have the sum that a header without a checksum has."""
    compressed = gzip.compress(bytes(10_000_000), mtime=25215)
    assert sum(map(len, decompressed(iter([compressed])))) == 10_000_000


def test_xz_data_cannot_ask_for_any_memory() -> None:
    data = bytearray(lzma.compress(tar(("a", b"A")), check=lzma.CHECK_NONE))
    begin, size = 12, (data[12] + 1) * 4  # position and size of the block header (xz file format 1.1.0, 3.1)
    place = data.index(b"\x21\x01", begin) + 2
    data[place] = 40  # a dictionary of 4 GiB
    data[begin + size - 4 : begin + size] = zlib.crc32(data[begin : begin + size - 4]).to_bytes(4, "little")
    assert "Memory usage limit" in the_end(from_stream(bytes(data)))


def test_zstd_is_read_where_python_can() -> None:
    Path("z.tar").write_bytes(PLAIN)
    try:
        subprocess.run(["zstd", "-q", "z.tar"], check=True)
    except FileNotFoundError:
        missing_service("zstd")
    compressed = Path("z.tar.zst").read_bytes()
    if sys.version_info >= (3, 14):
        assert is_tar("z.tar.zst") == "stream"
        assert taken(from_stream(compressed)) == WHOLE
        assert "too early" in the_end(from_stream(compressed[:-1000]))
    else:
        assert is_tar("z.tar.zst") is None
        (problem,) = problems(from_stream(compressed))
        assert problem.message == (
            "the archive is compressed with zstd, which this Python does not support: decompress it first"
        )


def test_an_archive_whose_first_name_looks_compressed_is_plain() -> None:
    assert taken(from_stream(tar(("BZhang/file", b"x")))) == [("BZhang/file", b"x")]
