"""Properties of bundles: a file is decoded from its span alone, and damage never yields another file."""

import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cafcat.errors import CafcatError, Corrupt, Unsupported
from cafcat.formats.databundle import DATABUNDLE
from cafcat.formats.databundle.bundles.bundle import Bundle, NewBundleFile, write_bundle
from cafcat.formats.databundle.bundles.record_decoding import parse_record_decoding
from cafcat.formats.databundle.layout import RECORD_BYTES
from cafcat.model import Entry
from cafcat.support.checksums import crc32c
from cafcat.testing.formats import BytesArchive
from tests.worlds.archives.bundles import foreign_bundle, inline_shard, rows_of, spans_alone, stored

SHARD = "shard-00000000"
COMPRESSIONS = pytest.mark.parametrize("compression", ["none", "snappy", "zlib"])
NAMES = st.text("ab/\u00fc", min_size=1, max_size=6)
PATTERNS = {
    "zeros": b"\0",
    "text": b"text of a file\n",
    "all": bytes(range(256)),
    "sparse": bytes(RECORD_BYTES) + b"x",
}


@st.composite
def contents(draw: st.DrawFn, record_bytes: int) -> bytes:
    """Contents with sizes near the ends of records."""
    records, more = draw(st.tuples(st.integers(0, 5), st.integers(-3, 300)))
    pattern = PATTERNS[draw(st.sampled_from(sorted(PATTERNS)))]
    size_bytes = max(0, records * record_bytes + more)
    return draw(st.binary(max_size=3)) + (pattern * (size_bytes // len(pattern) + 1))[:size_bytes]


@st.composite
def files(draw: st.DrawFn, record_bytes: int, most: int = 6) -> list[tuple[str, bytes]]:
    names = draw(st.lists(NAMES, unique=True, max_size=most))
    return [(name, draw(contents(record_bytes))) for name in names]


@COMPRESSIONS
@given(chosen=files(RECORD_BYTES), shards=st.integers(1, 4), directory=st.booleans())
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_files_are_decoded_from_their_spans_alone(
    compression: str, chosen: list[tuple[str, bytes]], shards: int, directory: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        new = [NewBundleFile(path, content) for path, content in chosen]
        new += [NewBundleFile("a folder", None)] if directory else []
        write_bundle(Path(folder), new, shards=shards, workers=2, compression=compression)
        assert spans_alone(Path(folder)) == dict(chosen)


@COMPRESSIONS
@given(
    data=st.data(), record_bytes=st.integers(1, 700), padding=st.lists(st.integers(0, 9), min_size=1, max_size=4)
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_records_of_any_size_and_position_are_read(
    compression: str, data: st.DataObject, record_bytes: int, padding: list[int]
) -> None:
    chosen = data.draw(files(record_bytes, 20))
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "bundle"
        foreign_bundle(bundle, chosen, compression, record_bytes=record_bytes, padding=padding)
        assert spans_alone(bundle) == dict(chosen)
        assert verified(bundle) == (dict(chosen), set())
    data_of = inline_shard(chosen, compression, record_bytes=record_bytes, padding=padding)
    reader = DATABUNDLE.reader(BytesArchive(data_of))
    assert {one.path: b"".join(reader.open(one)) for one in reader.entries()} == dict(chosen)


@COMPRESSIONS
@given(data=st.data(), record_bytes=st.sampled_from([100, 4096]))
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_damaged_shard_never_yields_another_file(compression: str, data: st.DataObject, record_bytes: int) -> None:
    chosen = data.draw(files(record_bytes))
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "bundle"
        foreign_bundle(bundle, chosen, compression, record_bytes=record_bytes, padding=[4])
        shard = bundle / SHARD
        body = bytearray(shard.read_bytes())
        for _ in range(data.draw(st.integers(1, 3))):
            body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
        shard.write_bytes(body[: data.draw(st.integers(len(body) // 2, len(body)))])
        try:
            found = read_all(bundle)
        except CafcatError as error:
            assert error.kind in ("corrupt", "unsupported")  # noqa: PT017 - any other error fails the test
            assert verified(bundle)[1] == ({SHARD} if chosen else set())
        else:
            assert found.items() <= dict(chosen).items()
            assert verified(bundle) == (found, dict(chosen).keys() - found.keys())


def verified(folder: Path) -> tuple[dict[str, bytes], set[str]]:
    """Return the contents by the index of the bundle, and the paths of the problems that verify finds."""
    found = {}
    with Bundle(folder) as bundle:
        for file in bundle.files():
            with suppress(Corrupt, Unsupported):
                found[file.path] = b"".join(bundle.open(file.path))
        return found, {problem.path for problem in bundle.verify(2).problems}


def read_all(bundle: Path) -> dict[str, bytes]:
    """Return the contents that can be read through the adopted bundle."""
    bundle_archive = DATABUNDLE.open_folder(stored(bundle))
    assert bundle_archive is not None
    found = {}
    for name in bundle_archive.names:
        reader = bundle_archive.reader(stored(bundle).open(name), name)
        for entry in reader.entries():
            try:
                found[entry.path] = b"".join(reader.open(entry))
            except CafcatError as error:
                assert error.kind in ("corrupt", "unsupported")  # noqa: PT017
    return found


@given(data=st.data(), name=st.sampled_from(["zlib", "snappy"]), record_bytes=st.integers(50, 5000))
@settings(max_examples=100)
def test_damaged_span_is_refused_or_has_its_size(data: st.DataObject, name: str, record_bytes: int) -> None:
    content = b"line of text\n" * 400
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "bundle"
        foreign_bundle(bundle, [("a", b"x" * 33), ("b", content)], name, record_bytes=record_bytes, padding=[5])
        bundle_archive = DATABUNDLE.open_folder(stored(bundle))
        assert bundle_archive is not None
        archive = stored(bundle).open("shard-00000000")
        [_, entry] = bundle_archive.reader(archive, "shard-00000000").entries()
        span = bytearray(archive.read_at(entry.start_byte, entry.end_byte))
    for _ in range(data.draw(st.integers(1, 3))):
        span[data.draw(st.integers(0, len(span) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        found = b"".join(DATABUNDLE.decode(iter([bytes(span)]), entry))
    except CafcatError as error:
        assert error.kind == "corrupt"  # noqa: PT017 - any other error fails the test
    else:
        assert len(found) == len(content)
        assert name == "zlib" or crc32c(found) == entry.crc32c


@given(st.text("zlibsnappy 0123456789+,", max_size=40) | st.builds("zlib {}".format, st.text("0123456789+, ")))
def test_any_text_is_parsed_as_a_decoding_or_not(text: str) -> None:
    decoding = parse_record_decoding(text)
    assert decoding is None or str(decoding) == text


@given(
    st.binary(max_size=400),
    st.integers(0, 1 << 40),
    st.builds(
        "{} {} {}{}".format,
        st.sampled_from(["zlib", "snappy"]),
        st.integers(0, 999),
        st.integers(0, 9),
        st.just(""),
    ),
)
def test_any_span_is_decoded_or_refused(span: bytes, size_bytes: int, decoding: str) -> None:
    entry = Entry("file", 4096, 4096 + len(span), 0, None, size_bytes, decoding)
    try:
        list(DATABUNDLE.decode(iter([span]), entry))
    except CafcatError as error:
        assert error.kind in ("corrupt", "unsupported")  # noqa: PT017 - any other error fails the test


@COMPRESSIONS
@given(data=st.data(), in_tables=st.booleans())
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_damaged_index_is_refused_or_harmless(compression: str, data: st.DataObject, in_tables: bool) -> None:
    chosen = dict(data.draw(files(RECORD_BYTES // 64)))
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "bundle"
        write_bundle(
            bundle, [NewBundleFile(path, content) for path, content in chosen.items()], compression=compression
        )
        if in_tables:
            rows_of(bundle)  # opening LevelDB turns its log into a table
        names = [path for path in sorted((bundle / "index").iterdir()) if path.stat().st_size]
        path = data.draw(st.sampled_from(names))
        body = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(0, 3))):
            body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
        path.write_bytes(body[: data.draw(st.integers(0, len(body)))])
        try:
            found = read_all(bundle) if DATABUNDLE.open_folder(stored(bundle)) else None
        except CafcatError as error:
            assert error.kind == "corrupt"  # noqa: PT017 - any other error fails the test
        else:
            assert found == chosen
