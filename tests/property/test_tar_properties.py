"""Properties of tar archives: packed files are read back; damage is reported as a problem, never raised."""

import bz2
import gzip
import lzma
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cafcat.model import SourceFile
from tests.worlds.archives.tar_archives import FORMATS, Taken, from_file, from_stream, link, taken, tar

NAMES = st.text(
    st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1, max_size=130
).filter(lambda name: name not in (".", ".."))


def sample(form: int) -> bytes:
    return tar(
        ("folder", b"", {"type": tarfile.DIRTYPE}),
        ("folder/a", b"A" * 700),
        ("b", b""),
        link("symlink", "b", tarfile.SYMTYPE),
        ("p" * 90 + "/" + "n" * 90 + "é", b"B" * 512),
        link("link", "folder/a"),
        ("c", b"C"),
        form=form,
    )


SAMPLES = {form: sample(form) for form in FORMATS}
COMPRESSED = {
    name: compress(SAMPLES[tarfile.GNU_FORMAT])
    for name, compress in (("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress))
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@given(
    st.lists(st.tuples(NAMES, st.binary(max_size=1500), st.integers(0, 2**33)), max_size=8),
    st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
)
def test_files_packed_by_tarfile_are_read_back(files: list[tuple[str, bytes, int]], form: int) -> None:
    data = tar(*((name, content, {"mtime": time}) for name, content, time in files), form=form)
    last = [file for n, file in enumerate(files) if file[0] not in {name for name, _, _ in files[n + 1 :]}]
    for open_archive in (from_file, from_stream):
        source = open_archive(data)
        assert taken(source) == [(name, content) for name, content, _ in last]
    times = [item.modified_ns for item in from_file(data).files() if isinstance(item, SourceFile)]
    assert times == [time * 10**9 for _, _, time in last]


def both_sources(data: bytes) -> Iterator[tuple[Taken, bool]]:
    """Yield the readable items, and True if the source reported a problem, for each kind of source."""
    for open_archive in (from_file, from_stream):
        found = taken(open_archive(data))
        good = [item for item in found if item[1] in ("symlink",) or isinstance(item[1], bytes)]
        yield good, len(good) < len(found)


@given(st.sampled_from(FORMATS), st.integers(0, 20_480))
def test_truncated_archive_gives_its_beginning_and_a_problem(form: int, size_bytes: int) -> None:
    whole = taken(from_file(SAMPLES[form]))
    for found, failed in both_sources(SAMPLES[form][:size_bytes]):
        assert found == whole[: len(found)]
        assert failed or found == whole


@given(st.integers(0, len(SAMPLES[tarfile.USTAR_FORMAT]) - 1), st.integers(1, 255))
@example(position=156, difference=5)
@example(position=155, difference=32)
def test_changed_byte_is_a_problem_or_changes_one_content(position: int, difference: int) -> None:
    """Only contents, which have no checksums, change without a problem; no file is lost."""
    data = bytearray(SAMPLES[tarfile.USTAR_FORMAT])
    whole = taken(from_file(bytes(data)))
    data[position] ^= difference
    for found, failed in both_sources(bytes(data)):
        assert [path for path, _ in found] == [path for path, _ in whole][: len(found)]
        assert failed or len(found) == len(whole)
        changed = {content for n, (_, content) in enumerate(found) if content != whole[n][1]}
        assert len(changed) <= 1  # a file and a hard link to it
        for content in changed:
            original = next(before for n, (_, before) in enumerate(whole) if found[n][1] == content)
            assert sum(a != b for a, b in zip(content, original, strict=True)) == 1


@given(st.sampled_from(FORMATS), st.lists(st.tuples(st.integers(0, 6_000), st.binary(min_size=1, max_size=40))))
def test_damage_never_raises(form: int, changes: list[tuple[int, bytes]]) -> None:
    data = bytearray(SAMPLES[form])
    for position, new in changes:
        data[position : position + len(new)] = new
    for found, _ in both_sources(bytes(data)):
        assert all(len(content) <= len(data) for _, content in found)


@given(
    st.sampled_from(sorted(COMPRESSED)),
    st.integers(0, 1_000_000),
    st.integers(0, 255),
)
def test_damage_of_compressed_data_is_reported(name: str, place: int, difference: int) -> None:
    """A byte is changed; or, if the difference is 0, the rest is cut off."""
    data = bytearray(COMPRESSED[name])
    place %= len(data)
    if difference:
        data[place] ^= difference
    else:
        del data[place:]
    source = from_stream(bytes(data))
    found = taken(source)
    whole = taken(from_stream(SAMPLES[tarfile.GNU_FORMAT]))
    assert found == whole or found[-1] == (source.name, "corrupt")
