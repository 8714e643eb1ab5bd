"""The archives that the CAF reader reads or refuses: of the original programs, and cafcat's own."""

import hashlib
import itertools
import json
import os
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cafcat.errors import CafcatError, Corrupt, Unsupported
from cafcat.formats.caf.format import CAF
from cafcat.formats.index_checksum import CHECKSUM_BYTES
from cafcat.formats.json_cursor import MAX_NESTING, MAX_TOKEN_BYTES, WINDOW_BYTES
from cafcat.formats.registry import by_name, detect
from cafcat.model import Entry
from cafcat.stores.local.files import LocalFile
from cafcat.testing.formats import BytesArchive, pack
from tests.worlds.archives import vector_files

VECTORS = vector_files.VECTORS / "caf"

FILES = b'"files":{"a":{"start_byte":0,"end_byte":5}}'
GOOD = b'{"format_version":"1.0",' + FILES + b"}"
A = Entry("a", 0, 5, None, None)


def archive(index: bytes, data: bytes = b"hello") -> BytesArchive:
    return BytesArchive(data + index + len(index).to_bytes(4, "little"))


def entry(members: bytes, name: bytes = b"a") -> bytes:
    """Return an index whose only entry has these members."""
    return b'{"format_version":"1.0","files":{"' + name + b'":{' + members + b"}}}"


def read(source: BytesArchive) -> list[Entry]:
    """Return all entries. The format is detected from the content first, as by `cafcat inspect`."""
    return list(detect(source).reader(source).entries())


SPAN = b'"start_byte":0,"end_byte":5'

ODDITIES: dict[str, Any] = {
    "odd_bad_utf8_name": (Corrupt, "path is not valid UTF-8"),
    "odd_case_keys": (Corrupt, 'no member "format_version"'),
    "odd_end_before_start": (Corrupt, "ends before it starts"),
    "odd_files_list": (Corrupt, 'value of "files"'),
    "odd_float_int": (Corrupt, "start_byte is not an integer"),
    "odd_footer_big": (Corrupt, "by its footer the index has 4,294,967,295 bytes"),
    "odd_footer_plus1": (Corrupt, "expected a JSON object"),
    "odd_gap": [("a", 0, 5), ("b", 8, 13)],
    "odd_index_ws_padded": [("a", 0, 5)],
    "odd_missing_end": (Corrupt, "no end_byte"),
    "odd_negative": (Corrupt, "negative"),
    "odd_no_version": (Corrupt, 'no member "format_version"'),
    "odd_overlap": [("a", 0, 4), ("b", 2, 5)],
    "odd_past_eof": (Corrupt, "exceeds the data"),
    "odd_pretty_trailing_comma": (Corrupt, "expected the name of a member"),
    "odd_three_bytes": (Corrupt, "3 bytes are too few"),
    "odd_truncated_1": (Corrupt, "by its footer"),
    "odd_version_number": (Corrupt, 'a string as "format_version"'),
}


def test_every_oddity_of_the_vectors_is_expected_here() -> None:
    assert {path.stem for path in VECTORS.glob("odd_*.caf")} == set(ODDITIES)


@pytest.mark.parametrize("name", sorted(ODDITIES))
def test_oddities_are_read_or_refused(name: str) -> None:
    with LocalFile(str(VECTORS / f"{name}.caf")) as source:
        expected = ODDITIES[name]
        if isinstance(expected, list):
            assert [entry[:3] for entry in CAF.reader(source).entries()] == expected
            assert detect(source) is CAF
            return
        kind, words = expected
        with pytest.raises(kind) as caught:
            list(detect(source).reader(source).entries())
        assert words in str(caught.value)
        assert caught.value.chunk == source.name
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("writer", ["go", "ts"])
@pytest.mark.parametrize("name", ["dup_names", "empty_archive", "many_small", "names", "one_empty_file", "order"])
def test_archives_of_the_original_programs(name: str, writer: str) -> None:
    expected = json.loads((VECTORS / f"{name}.expected.json").read_text())["files"]
    with LocalFile(str(VECTORS / f"{name}.{writer}.caf")) as source:
        found = {
            entry.path: (
                entry.size_bytes,
                hashlib.sha256(source.read_at(entry.start_byte, entry.end_byte)).hexdigest(),
            )
            for entry in detect(source).reader(source).entries()
        }
    assert found == {file["path"]: (file["size"], file["sha256"]) for file in expected}


GOOD_INDEXES = {
    "plain": GOOD,
    "spaces": b' \t\r\n{ "format_version" : "1.0" ,\n"files":{ "a" : { "start_byte" : 0 , "end_byte" : 5 } } } \n',
    "files first": b"{" + FILES + b',"format_version":"1.0"}',
    "version twice": b'{"format_version":"1.0","format_version":"1.0",' + FILES + b"}",
    "end before start in the text": entry(b'"end_byte":5,"start_byte":0'),
    "escaped keys": rb'{"form\u0061t_version":"1\u002e0","files":{"\u0061":{"start\u005fbyte":0,"end_byte":5}}}',
    "escaped files": GOOD.replace(b'"files"', rb'"f\u0069les"'),
    "unknown members of an entry": entry(
        b'"x":null,"start_byte":0,"y":[{},[],{"z":[1,-2.5e+3,true,""]}],"end_byte":5'
    ),
    "unknown members of the top": b'{"v":{"files":[1]},"format_version":"1.0","w":false,' + FILES + b',"x":"}"}',
    "a member twice": entry(b'"start_byte":3,"end_byte":9,"start_byte":0,"end_byte":5'),
    "deepest nesting": b'{"x":' + b"[" * MAX_NESTING + b"]" * MAX_NESTING + b"," + GOOD[1:],
    "spaces across windows": GOOD[:-1] + b" " * (WINDOW_BYTES * 2 + 5) + b"}",
    "padded far": GOOD + b" " * 100,
}


@pytest.mark.parametrize("name", GOOD_INDEXES)
def test_every_way_to_write_an_index_is_read(name: str) -> None:
    assert read(archive(GOOD_INDEXES[name])) == [A]


AWKWARD = (
    rb'{"x":[-1.5e+10,true,null,"\ud83d\ude00\\"],"format_version":"1.0","files":{"\u0061\ud83d\ude00":'
    rb'{"start_byte":0,"end_byte":5,"crc32c":12,"modified_ns":-34},"b":{"start_byte":0,"end_byte":5},"c\"":{'
    rb'"start_byte":1,"end_byte":5}}}'
)


@pytest.mark.parametrize("offset", range(len(AWKWARD) + 1))
def test_a_window_may_end_anywhere(offset: int) -> None:
    index = b" " * (WINDOW_BYTES - offset) + AWKWARD
    expected = [Entry("a😀", 0, 5, 12, -34), A._replace(path="b"), Entry('c"', 1, 5, None, None)]
    assert list(CAF.reader(archive(index)).entries()) == expected


def files(text: bytes) -> bytes:
    return b'{"format_version":"1.0","files":' + text + b"}"


BAD_INDEXES: dict[str, tuple[bytes, type[CafcatError], str]] = {
    "empty": (b"", Corrupt, "the index ends"),
    "cut": (GOOD[:-1], Corrupt, "the index ends"),
    "cut in a string": (GOOD[:10], Corrupt, "the index ends"),
    "version missing": (b"{" + FILES + b"}", Corrupt, 'no member "format_version"'),
    "version 2.0": (GOOD.replace(b"1.0", b"2.0"), Unsupported, "CAF version '2.0'"),
    "version 1.00": (GOOD.replace(b"1.0", b"1.00"), Unsupported, "CAF version '1.00'"),
    "version null": (GOOD.replace(b'"1.0"', b"null"), Corrupt, 'a string as "format_version"'),
    "version number": (GOOD.replace(b'"1.0"', b"1.0"), Corrupt, 'a string as "format_version"'),
    "version 2.0 after 1.0": (GOOD[:-1] + b',"format_version":"2.0"}', Unsupported, "version '2.0'"),
    "files missing": (b'{"format_version":"1.0"}', Corrupt, 'no member "files"'),
    "files twice": (GOOD[:-1] + b"," + FILES + b"}", Corrupt, 'two members "files"'),
    "files null": (files(b"null"), Corrupt, 'value of "files"'),
    "files list": (files(b"[]"), Corrupt, 'value of "files"'),
    "files string": (files(b'"{}"'), Corrupt, 'value of "files"'),
    "entry null": (files(b'{"a":null}'), Corrupt, "expected an object as an entry"),
    "entry list": (files(b'{"a":[0,5]}'), Corrupt, "expected an object as an entry"),
    "top list": (b"[" + GOOD + b"]}", Corrupt, "expected a JSON object"),
    "two objects": (GOOD + b"{}", Corrupt, "more text after the end"),
    "NUL after": (GOOD + b"\0}", Corrupt, "more text after the end"),
    "BOM": (b"\xef\xbb\xbf" + GOOD, Corrupt, "byte order mark"),
    "UTF-16": (GOOD.decode().encode("utf-16-le") + b"}", Corrupt, "malformed"),
    "single quotes": (GOOD.replace(b'"', b"'"), Corrupt, "malformed"),
    "comma after the entry": (files(b'{"a":{%b},}' % SPAN), Corrupt, "expected a path"),
    "comma after the files": (GOOD[:-1] + b",}", Corrupt, "expected the name of a member"),
    "no comma": (files(b'{"a":{%b}"b":{%b}}' % (SPAN, SPAN)), Corrupt, "expected ',', but found"),
    "no colon": (files(b'{"a"{%b}}' % SPAN), Corrupt, "expected ':', but found"),
    "start missing": (entry(b'"end_byte":5'), Corrupt, "no start_byte"),
    "end missing": (entry(b'"start_byte":0'), Corrupt, "no end_byte"),
    "case": (entry(b'"Start_Byte":0,"end_byte":5'), Corrupt, "no start_byte"),
    "float": (entry(b'"start_byte":0.0,"end_byte":5'), Corrupt, "start_byte is not an integer"),
    "exponent": (entry(b'"start_byte":0,"end_byte":5e0'), Corrupt, "end_byte is not an integer"),
    "string": (entry(b'"start_byte":"0","end_byte":5'), Corrupt, 'an integer as "start_byte"'),
    "true": (entry(b'"start_byte":true,"end_byte":5'), Corrupt, "start_byte is not an integer"),
    "null": (entry(b'"start_byte":null,"end_byte":5'), Corrupt, "start_byte is not an integer"),
    "NaN": (entry(b'"start_byte":NaN,"end_byte":5'), Corrupt, 'an integer as "start_byte"'),
    "Infinity": (entry(b'"start_byte":0,"end_byte":Infinity'), Corrupt, 'an integer as "end_byte"'),
    "NaN elsewhere": (entry(SPAN + b',"x":NaN'), Corrupt, "expected a value"),
    "minus zero": (entry(b'"start_byte":-0,"end_byte":5'), Corrupt, "start_byte is not an integer: -0"),
    "leading zero": (entry(b'"start_byte":00,"end_byte":5'), Corrupt, "expected ',', but found"),
    "plus": (entry(b'"start_byte":+0,"end_byte":5'), Corrupt, 'an integer as "start_byte"'),
    "hexadecimal": (entry(b'"start_byte":0x0,"end_byte":5'), Corrupt, "expected ',', but found"),
    "negative start": (entry(b'"start_byte":-1,"end_byte":5'), Corrupt, "negative"),
    "negative end": (entry(b'"start_byte":0,"end_byte":-5'), Corrupt, "negative"),
    "reversed": (entry(b'"start_byte":5,"end_byte":4'), Corrupt, "ends before it starts"),
    "into the index": (entry(b'"start_byte":0,"end_byte":6'), Corrupt, "exceeds the data"),
    "2^63": (entry(b'"start_byte":0,"end_byte":9223372036854775808'), Corrupt, "exceeds the data"),
    "2^64 digits": (entry(b'"start_byte":0,"end_byte":18446744073709551616'), Corrupt, "not a 64-bit number"),
    "5,000 digits": (entry(b'"start_byte":0,"end_byte":' + b"9" * 5000), Corrupt, "not a 64-bit number"),
    "crc32c 2^32": (entry(SPAN + b',"crc32c":4294967296'), Corrupt, "crc32c is not a 32-bit number"),
    "crc32c negative": (entry(SPAN + b',"crc32c":-1'), Corrupt, "crc32c is not a 32-bit number"),
    "crc32c string": (entry(SPAN + b',"crc32c":"1"'), Corrupt, 'an integer as "crc32c"'),
    "crc32c null": (entry(SPAN + b',"crc32c":null'), Corrupt, "crc32c is not an integer"),
    "time 2^63": (entry(SPAN + b',"modified_ns":9223372036854775808'), Corrupt, "modified_ns is not a 64-bit"),
    "time -2^63-1": (entry(SPAN + b',"modified_ns":-9223372036854775809'), Corrupt, "modified_ns is not a 64-bit"),
    "time float": (entry(SPAN + b',"modified_ns":1.5'), Corrupt, "modified_ns is not an integer"),
    "high surrogate": (entry(SPAN, rb"\ud800"), Corrupt, "unpaired surrogate"),
    "low surrogate": (entry(SPAN, rb"x\udc00y"), Corrupt, "unpaired surrogate"),
    "surrogates the wrong way round": (entry(SPAN, rb"\ude00\ud83d"), Corrupt, "unpaired surrogate"),
    "encoded surrogate": (entry(SPAN, b"\xed\xa0\x80"), Corrupt, "path is not valid UTF-8"),
    "Latin-1": (entry(SPAN, b"caf\xe9"), Corrupt, "path is not valid UTF-8"),
    "overlong": (entry(SPAN, b"\xc0\xaf"), Corrupt, "path is not valid UTF-8"),
    "not UTF-8 in passing": (entry(SPAN + b',"x":["\xff"]'), Corrupt, "string is not valid UTF-8"),
    "raw newline": (entry(SPAN, b"a\nb"), Corrupt, "closing quote of a path"),
    "raw NUL": (entry(SPAN, b"a\0b"), Corrupt, "closing quote of a path"),
    "bad escape": (entry(SPAN, rb"a\x41"), Corrupt, "closing quote of a path"),
    "short escape": (entry(SPAN, rb"a\u12"), Corrupt, "closing quote of a path"),
    "too deep": (b'{"x":' + b"[" * (MAX_NESTING + 1) + b"]}", Corrupt, "nested deeper than 64"),
    "far too deep": (b'{"x":' + b'{"x":[' * 500_000 + b"}", Corrupt, "nested deeper than 64"),
    "name above 1 MiB": (entry(SPAN, b"x" * (MAX_TOKEN_BYTES + 1)), Unsupported, "string or number of more than"),
    "number above 1 MiB": (
        entry(SPAN + b',"x":' + b"1" * (MAX_TOKEN_BYTES + 1)),
        Unsupported,
        "more than 1,048,576",
    ),
    "endless string": (b'{"' + b"x" * 3 * WINDOW_BYTES + b"}", Unsupported, "more than 1,048,576"),
}


@pytest.mark.parametrize("name", BAD_INDEXES)
def test_bad_indexes_are_refused(name: str) -> None:
    index, kind, words = BAD_INDEXES[name]
    source = archive(index)
    with pytest.raises(CafcatError) as caught:
        list(CAF.reader(source).entries())
    assert type(caught.value) is kind
    assert words in str(caught.value)
    assert caught.value.chunk == source.name
    assert caught.value.byte is not None
    assert 5 <= caught.value.byte <= source.size_bytes - 4
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


OF_AN_ENTRY = [name for name, (index, _, _) in BAD_INDEXES.items() if index.count(b'"files":{"') == 1]


@pytest.mark.parametrize("name", OF_AN_ENTRY)
def test_bad_entries_are_refused_among_many_usual_ones(name: str) -> None:
    index, kind, _ = BAD_INDEXES[name]
    many = b"".join(b'"%d":{%b},' % (n, SPAN) for n in range(2000))
    index = index.replace(b'"files":{', b'"files":{' + many)
    if index.endswith(b"}}"):  # the end of files: add an entry after the odd one
        index = index[:-2] + b',"last":{%b}}}' % SPAN
    with pytest.raises(kind):
        list(CAF.reader(archive(index)).entries())


@pytest.mark.parametrize("style", [b'"%b":{"start_byte":4,"end_byte":2},', b'"%b": {"start_byte":4,"end_byte":2},'])
def test_errors_name_path_and_byte(style: bytes) -> None:
    before = b'{"format_version":"1.0","files":{' + b"".join(b'"%d":{%b},' % (n, SPAN) for n in range(30_000))
    index = before + style % b"bad one" + b'"z":{' + SPAN + b"}}}"
    with pytest.raises(Corrupt) as caught:
        list(CAF.reader(archive(index)).entries())
    assert caught.value.path == "bad one"
    assert caught.value.byte == 5 + len(before)


def test_the_byte_of_bad_utf8_is_exact() -> None:
    for tail in (b'"b":{%b}' % SPAN, b'"b": {%b}' % SPAN):
        before = b'{"format_version":"1.0","files":{'
        index = before + b'"ok\xff":{%b},' % SPAN + tail + b"}}"
        with pytest.raises(Corrupt) as caught:
            list(CAF.reader(archive(index)).entries())
        assert caught.value.byte == 5 + len(before) + 3


@pytest.mark.parametrize("data", [b"", b"a", b"abc"])
def test_archives_shorter_than_a_footer_are_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt, match="cannot hold the footer"):
        CAF.reader(BytesArchive(data))
    with pytest.raises(Corrupt, match="too few"):
        detect(BytesArchive(data))


def test_a_footer_that_is_one_off() -> None:
    for wrong in (len(GOOD) - 1, len(GOOD) + 1, len(GOOD) + 6, 0):
        source = BytesArchive(b"hello" + GOOD + wrong.to_bytes(4, "little"))
        with pytest.raises(Corrupt):
            read(source)


def test_every_cut_of_an_archive_is_corrupt() -> None:
    data, _, _ = pack(CAF, [("file", b"data", 5), ("é", b"", None)])
    for size_bytes in range(len(data)):
        with pytest.raises(Corrupt):
            list(CAF.reader(BytesArchive(data[:size_bytes])).entries())


@pytest.mark.parametrize("path", ["", "..", "../up", "/abs", "dir/", "nul\0name", "a//b", "x" * 5000, "😀", "}},"])
def test_names_are_shown_as_the_archive_has_them(path: str) -> None:
    for ascii_only in (True, False):
        text = json.dumps({"format_version": "1.0", "files": {path: A._asdict()}}, ensure_ascii=ascii_only)
        text = text.replace(', "crc32c": null, "modified_ns": null', "")
        assert read(archive(text.encode())) == [A._replace(path=path)]


def test_last_entry_of_a_repeated_name_counts() -> None:
    names = [b"a", b"b", rb"\u0061", b"c", b"b", b"b", b"d"]
    items = b",".join(b'"%b":{"start_byte":%d,"end_byte":5}' % (name, n % 5) for n, name in enumerate(names))
    index = b'{"format_version":"1.0","files":{' + items + b"}}"
    assert [(entry.path, entry.start_byte) for entry in read(archive(index))] == [
        ("a", 2),
        ("c", 3),
        ("b", 0),
        ("d", 1),
    ]


def test_an_entry_that_makes_no_sense_is_refused_though_superseded() -> None:
    index = b'{"format_version":"1.0","files":{"a":{"start_byte":4,"end_byte":2},"a":{%b}}}' % SPAN
    with pytest.raises(Corrupt, match="ends before it starts"):
        read(archive(index))


def test_a_checksum_of_a_file_marks_an_archive_of_cafcat_where_no_name_may_stand_twice() -> None:
    index = b'{"format_version":"1.0","files":{"a":{%b,"crc32c":1},"a":{%b}}}' % (SPAN, SPAN)
    with pytest.raises(Corrupt, match="this name twice"):
        read(archive(index))


def flips(start: int, end: int, data: bytes) -> Iterator[bytes]:
    """The data with each bit of `[start, end)` flipped in turn."""
    for at, bit in itertools.product(range(start, end), range(8)):
        yield data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


@pytest.mark.parametrize("name", ["caf", "car", "chunkio"])
@pytest.mark.parametrize("paths", [("folder/one", "folder/two", "z"), ("z", "b", "a")])
def test_every_flipped_bit_in_an_own_index_is_detected_or_harmless(name: str, paths: Sequence[str]) -> None:
    archive_format = by_name(name)
    data, entries, finished = pack(archive_format, [(path, b"content", 1) for path in paths])
    end = data.rindex(b',"index_crc32c":"') + CHECKSUM_BYTES
    accepted = 0
    for damaged in flips(finished.index_start_byte, end, data):
        try:
            assert list(archive_format.reader(BytesArchive(damaged)).entries()) == entries
        except CafcatError:
            continue
        accepted += 1
    assert accepted < 8 * CHECKSUM_BYTES  # only flips in the member with the checksum


def test_an_index_without_checksum_is_read_as_before() -> None:
    data, entries, finished = pack(CAF, [("a", b"1", 1), ("b", b"2", 2)])
    index = data[finished.index_start_byte : finished.index_end_byte]
    without = index[:-CHECKSUM_BYTES] + b"}"
    data = data[: finished.index_start_byte] + without + len(without).to_bytes(4, "little")
    assert list(CAF.reader(BytesArchive(data)).entries()) == entries


@pytest.mark.parametrize(
    "end",
    [
        b',"index_crc32c":"00000000" }',
        b',"index_crc32c":"0000000"}',
        b',"index_crc32c":"0000000G"}',
        b',"index_crc32c":0}',
        b',"index_crc32c":"00000000","x":1}',
    ],
)
def test_a_member_of_that_name_in_any_other_form_is_ignored(end: bytes) -> None:
    assert read(archive(b'{"format_version":"1.0","files":{"a":{%b}}' % SPAN + end)) == [A]


def test_checksum_of_an_index_with_many_windows() -> None:
    for paths in ([f"file{n:06}" for n in range(30_000)], [f"file{n % 977:03}/{n}" for n in range(30_000)]):
        data, entries, finished = pack(CAF, [(path, b"", 1) for path in paths])
        assert finished.index_end_byte - finished.index_start_byte > 2 * WINDOW_BYTES
        assert list(CAF.reader(BytesArchive(data)).entries()) == entries
        for path in (paths[0], paths[-1]):
            damaged = data.replace(path.encode(), path.replace("file", "fill").encode())
            with pytest.raises(Corrupt, match="the index is damaged: its CRC-32C is"):
                CAF.reader(BytesArchive(damaged)).entries()


def many_entries(count: int, names: int) -> Iterator[bytes]:
    """Yield an index with this number of entries and names, in the usual layout."""
    yield b'{"format_version":"1.0","files":{'
    for n in range(count):
        comma = b"," if n else b""
        yield b'%b"some/folder/of/files/file%08d.dat":{"start_byte":%d,"end_byte":5}' % (comma, n % names, n % 5)
    yield b"}}"


@pytest.mark.parametrize(
    ("count", "names"),
    [pytest.param(100_000, 100_000, marks=pytest.mark.slow), (50_000, 25_000), (20_000, 7)],
)
def test_memory_is_bounded_for_any_number_of_entries(tmp_path: Path, count: int, names: int) -> None:
    path = tmp_path / "many.caf"
    with path.open("wb") as file:
        file.write(b"hello")
        size = sum(file.write(part) for part in many_entries(count, names))
        file.write(size.to_bytes(4, "little"))
    with LocalFile(str(path)) as source:
        tracemalloc.start()
        try:
            found = sum(1 for _ in CAF.reader(source).entries())
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert found == names
    assert peak < 6 << 20


def test_a_footer_that_claims_4_gb_of_nothing(tmp_path: Path) -> None:
    path = tmp_path / "sparse.caf"
    with path.open("wb") as file:
        file.truncate(0xFFFF_FFFF + 100)
        file.seek(0, os.SEEK_END)
        file.write(b"}" + (0xFFFF_FFFF).to_bytes(4, "little"))
    with LocalFile(str(path)) as source:
        assert detect(source) is CAF
        tracemalloc.start()
        try:
            with pytest.raises(Corrupt, match="malformed"):
                list(CAF.reader(source).entries())
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 8 << 20


def test_reads_are_small_and_lie_within_the_index() -> None:
    index = b"".join(many_entries(60_000, 60_000))
    source = archive(index)
    reader = CAF.reader(source)
    assert len(list(reader.entries())) == 60_000
    start, end = reader.index_span
    assert source.reads[0] == (end, end + 4)
    assert all(start <= first <= last <= end for first, last in source.reads[1:])
    assert max(last - first for first, last in source.reads) <= WINDOW_BYTES
    assert sum(last - first for first, last in source.reads[1:]) == 2 * len(index) + CHECKSUM_BYTES


def test_formats_by_name_and_by_content() -> None:
    assert by_name("caf") is CAF
    with pytest.raises(Unsupported, match="available formats: caf"):
        by_name("zip")
    for data in (b"PK\5\6" + bytes(18), b"just some text, no archive", bytes(1000)):
        with pytest.raises(Unsupported, match="unknown archive format"):
            detect(BytesArchive(data))
