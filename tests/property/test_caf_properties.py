"""Properties of CAF: files are read as they were packed; any bytes are read or refused; the index is valid JSON."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cafcat.errors import CafcatError, Corrupt
from cafcat.formats.caf.format import CAF
from cafcat.formats.json_cursor import JsonCursor
from cafcat.model import MAX_PATH_BYTES, Entry
from cafcat.testing.formats import BytesArchive, pack

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
PATHS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(
    lambda path: len(path.encode()) <= MAX_PATH_BYTES
)
FILES = st.lists(st.tuples(PATHS, st.binary(max_size=200), st.none() | INT64), unique_by=lambda file: file[0])
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | INT64 | st.floats(allow_nan=False, allow_infinity=False) | NAMES,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(NAMES, children, max_size=3),
    max_leaves=8,
)
DATA = b"0123456789"


def archive(index: bytes) -> BytesArchive:
    return BytesArchive(DATA + index + len(index).to_bytes(4, "little"))


def read(source: BytesArchive) -> list[Entry]:
    return list(CAF.reader(source).entries())


def outcome(index: bytes) -> Any:
    """Return the entries, or the kind of the error."""
    try:
        return read(archive(index))
    except CafcatError as error:
        return error.kind


@given(FILES)
def test_packed_files_are_read_back(files: list[tuple[str, bytes, int | None]]) -> None:
    data, entries, finished = pack(CAF, files)
    assert read(BytesArchive(data)) == entries
    assert finished.size_bytes == len(data)
    for (path, content, modified_ns), entry in zip(files, entries, strict=True):
        assert (entry.path, entry.modified_ns) == (path, modified_ns)
        assert data[entry.start_byte : entry.end_byte] == content


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        entries = read(BytesArchive(data))
    except CafcatError as error:
        assert "\n" not in str(error)  # noqa: PT017 - any other error fails the test
    else:
        assert all(0 <= entry.start_byte <= entry.end_byte <= len(data) for entry in entries)


@given(st.binary(max_size=100), st.sampled_from([b'{"format_version":"1.0","files":{', b'{"files":{"a":{', b"{"]))
def test_any_bytes_as_an_index_are_read_or_refused(text: bytes, head: bytes) -> None:
    outcome(head + text)
    outcome(head + text + b"}}}")


@given(FILES.filter(bool), st.data())
def test_damaged_archive_is_read_or_refused(
    files: list[tuple[str, bytes, int | None]], data: st.DataObject
) -> None:
    whole = bytearray(pack(CAF, files)[0])
    for _ in range(data.draw(st.integers(1, 3))):
        whole = whole or bytearray(b"?")
        position = data.draw(st.integers(0, max(0, len(whole) - 2)))
        kind = data.draw(st.sampled_from(["change", "remove", "insert", "cut"]))
        if kind == "change":
            whole[position] = data.draw(st.integers(0, 255))
        elif kind == "remove":
            del whole[position]
        elif kind == "insert":
            whole[position:position] = data.draw(st.sampled_from([b"\0", b'"', b"}", b",", b"-", b"\\", b"\xff"]))
        else:
            del whole[position + 1 :]
    try:
        entries = read(BytesArchive(bytes(whole)))
    except CafcatError:
        return
    assert all(0 <= entry.start_byte <= entry.end_byte <= len(whole) for entry in entries)


ENTRIES = st.lists(
    st.tuples(
        NAMES,
        st.integers(0, 10),
        st.integers(0, 10),
        st.none() | st.integers(0, (1 << 32) - 1),
        st.none() | INT64,
    ).map(lambda entry: Entry(entry[0], *sorted(entry[1:3]), *entry[3:])),
    max_size=30,
)


def members(entry: Entry) -> dict[str, int]:
    return {key: value for key, value in zip(Entry._fields[1:], entry[1:], strict=True) if value is not None}


def index_text(entries: list[Entry], colon: str, comma: str, *, ascii_only: bool) -> bytes:
    """Return an index with these separators. Repeated names stay in it."""
    items = [
        json.dumps(entry.path, ensure_ascii=ascii_only)
        + colon
        + json.dumps(members(entry), separators=(comma, colon))
        for entry in entries
    ]
    return f'{{"format_version"{colon}"1.0"{comma}"files"{colon}{{{comma.join(items)}}}}}'.encode()


def by_json(index: bytes) -> list[Entry]:
    """Return the entries by the json module.

    The last of several entries with one name counts, at its own position.
    """
    pairs = json.loads(index, object_pairs_hook=lambda pairs: pairs)
    files = dict(pairs)["files"]
    last = {name: ordinal for ordinal, (name, _) in enumerate(files)}
    kept = [(name, dict(values)) for ordinal, (name, values) in enumerate(files) if last[name] == ordinal]
    return [
        Entry(name, found["start_byte"], found["end_byte"], found.get("crc32c"), found.get("modified_ns"))
        for name, found in kept
    ]


@given(ENTRIES, st.booleans())
def test_every_layout_is_read_as_json_reads_it(entries: list[Entry], ascii_only: bool) -> None:
    usual = index_text(entries, ":", ",", ascii_only=ascii_only)
    spaced = index_text(entries, " :\n", "\t, ", ascii_only=ascii_only)
    superseded = [
        entry for n, entry in enumerate(entries) if entry.path in {later.path for later in entries[n + 1 :]}
    ]
    if any(
        entry.crc32c is not None for entry in superseded
    ):  # with checksums, the index is cafcat's own, in which names are unique
        for text in (usual, spaced):
            with pytest.raises(Corrupt, match="this name twice"):
                read(archive(text))
        return
    assert read(archive(usual)) == by_json(usual)
    assert read(archive(spaced)) == by_json(usual)


NUMBERS = ["0", "5", "10", "-0", "-1", "00", "1.0", "1e0", "9" * 18, "9" * 19, "9" * 20, "null", '"1"', "NaN", ""]
NUMBERS += [str((1 << 32) - 1), str(1 << 32), str((1 << 63) - 1), str(1 << 63), str(-(1 << 63)), "true"]


@given(st.dictionaries(st.integers(0, 3), st.sampled_from(NUMBERS), max_size=2), st.integers(0, 3))
@example({3: ""}, 0)  # read as "no modified_ns" by a regular expression that Python 3.11.2 matches wrongly
def test_odd_numbers_have_one_outcome_in_every_layout(odd: dict[int, str], place: int) -> None:
    numbers = [odd.get(n, number) for n, number in enumerate(["0", "5", "1", "1"])]
    usual_span = '{"start_byte":0,"end_byte":5}'
    names = ("start_byte", "end_byte", "crc32c", "modified_ns")
    compact = "{" + ",".join(f'"{name}":{number}' for name, number in zip(names, numbers, strict=True)) + "}"
    spaced = compact.replace(":", " : ")
    texts = []
    for item in (compact, spaced):
        items = [usual_span] * 4
        items[place] = item
        files = ",".join(f'"{n}":{text}' for n, text in enumerate(items))
        texts.append(f'{{"format_version":"1.0","files":{{{files}}}}}'.encode())
    assert outcome(texts[0]) == outcome(texts[1])


@pytest.mark.parametrize("indent", [None, 2])
@given(value=JSON_VALUES)
def test_unknown_members_are_ignored(indent: int | None, value: Any) -> None:
    entry = {"start_byte": 1, "x": value, "end_byte": 2}
    index = json.dumps({"x": value, "format_version": "1.0", "files": {"a": entry}, "y": value}, indent=indent)
    assert read(archive(index.encode())) == [Entry("a", 1, 2, None, None)]


def refuse_constant(name: str) -> None:
    raise ValueError(name)


def json_accepts(text: bytes) -> bool:
    """Return True if the json module, made as strict as RFC 8259, accepts the text."""
    try:
        value = json.loads(text.decode(), parse_constant=refuse_constant)
        json.dumps(value, ensure_ascii=False).encode()  # unpaired surrogates cannot be encoded
    except (ValueError, RecursionError):
        return False
    return True


def cursor_accepts(text: bytes) -> bool:
    try:
        cursor = JsonCursor(BytesArchive(text), 0, len(text))
        cursor.skip()
    except CafcatError:
        return False
    return not cursor.peek()


JSON_BITS = ["{", "}", "[", "]", ":", ",", '"', "\\", "\\u0041", "\\ud83d", "\\ude00", "0", "1", "-", ".", "e", "+"]
JSON_BITS += ["true", "null", "NaN", " ", "\n", "\0", "\x0b", "\u00a0", "é", '"a"', '"a":', "[]", "{}", "\ufeff"]


@given(st.lists(st.sampled_from(JSON_BITS), max_size=12).map("".join))
def test_cursor_accepts_exactly_valid_json(text: str) -> None:
    # json keeps the last of several members with one name, and never sees a surrogate in an earlier one.
    encoded = text.encode()
    if cursor_accepts(encoded):
        assert json_accepts(encoded)
    elif json_accepts(encoded):
        assert "\\u" in text


@given(JSON_VALUES, st.sampled_from([None, 1]))
def test_cursor_accepts_every_json_value(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=indent is None).encode()
    assert cursor_accepts(text)
    assert not cursor_accepts(text[:-1] + b"\x00")
