"""Packed files as open binary files: position, contents, read-ahead, checksums, copies, other programs' readers."""

import io
import os
import pickle
import random
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cafcat
from cafcat.errors import Corrupt, InvalidInput, NotFound
from cafcat.stores.local.store import LocalStore
from cafcat.stores.s3.store import S3Store
from tests.worlds.servers.s3_proxy import S3Proxy

CONTENT = random.Random(2)
FILES = {
    "files/empty": b"",
    "files/small": CONTENT.randbytes(1000),
    "files/whole": CONTENT.randbytes(1 << 20),
    "files/large": CONTENT.randbytes((1 << 20) + 1),
    "files/larger": CONTENT.randbytes(3_000_000),
}
KINDS = ("caf", "databundle")


@pytest.fixture(scope="module")
def packed(databases: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, cafcat.Repository]]:
    """A repository for each of two formats: one stores files as they are, the other compresses them."""
    opened = {}
    with databases.fresh(databases.template()) as first, databases.fresh(databases.template()) as second:
        for kind, url in zip(KINDS, (first, second), strict=True):
            folder = tmp_path_factory.mktemp(kind)
            opened[kind] = cafcat.open(database_url=url, home=folder / "home", store=str(folder / "store"))
            with opened[kind].writer(format=kind) as writer:
                for path, content in FILES.items():
                    writer.add(path, content)
        yield opened
        for repository in opened.values():
            repository.close()


@pytest.fixture
def repository(database_url: str, tmp_path: Path) -> Iterator[cafcat.Repository]:
    store = str(tmp_path / "store")
    with cafcat.open(database_url=database_url, home=tmp_path / "home", store=store) as repository:
        yield repository


def write(repository: cafcat.Repository, files: dict[str, bytes], **options: Any) -> None:
    with repository.writer(**options) as writer:
        for path, content in files.items():
            writer.add(path, content)


def flip(repository: cafcat.Repository, path: str, at: int) -> None:
    """Flip a byte of a file in its chunk. `at` is its offset from the start of the file."""
    location = repository.locate(path)
    chunk = Path(repository.object_of(location))
    data = bytearray(chunk.read_bytes())
    data[location.start_byte + at] ^= 1
    chunk.write_bytes(data)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", FILES)
def test_a_file_has_its_content_from_every_position(
    packed: dict[str, cafcat.Repository], kind: str, path: str
) -> None:
    expected = FILES[path]
    with packed[kind].open(path) as file:
        assert (file.name, file.readable(), file.seekable(), file.writable()) == (path, True, True, False)
        assert file.read() == expected
        assert file.read() == b""
        assert file.seek(-7 if len(expected) > 7 else 0, os.SEEK_END) == max(0, len(expected) - 7)
        assert file.read() == expected[-7:]
        assert file.seek(len(expected) // 2) == len(expected) // 2
        assert file.read() == expected[len(expected) // 2 :]
        assert file.seek(10, os.SEEK_END) == len(expected) + 10
        assert file.read(5) == b""


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the same files."""
    folder = tmp_path_factory.mktemp("disk")
    (folder / "files").mkdir()
    for path, content in FILES.items():
        (folder / path).write_bytes(content)
    return folder


steps = st.lists(
    st.one_of(
        st.tuples(st.just("seek"), st.integers(-4_000_000, 4_000_000), st.sampled_from([0, 1, 2])),
        st.tuples(st.just("read"), st.integers(-1, 2_000_000)),
        st.tuples(st.just("read1"), st.integers(0, 300_000)),
        st.tuples(st.just("readinto"), st.integers(0, 2_000_000)),
    ),
    max_size=8,
)


def take(file: Any, step: tuple[Any, ...]) -> object:
    """Do one step. A seek to a negative position is an error of every file."""
    verb, *arguments = step
    if verb == "readinto":
        buffer = bytearray(arguments[0])
        return file.readinto(buffer), bytes(buffer)
    try:
        return getattr(file, verb)(*arguments)
    except (OSError, ValueError):
        return "refused"


@settings(max_examples=60)
@given(kind=st.sampled_from(KINDS), path=st.sampled_from(sorted(FILES)), history=steps)
def test_any_steps_have_the_results_of_a_file_on_disk(
    packed: dict[str, cafcat.Repository], on_disk: Path, kind: str, path: str, history: list[tuple[Any, ...]]
) -> None:
    with packed[kind].open(path) as file, (on_disk / path).open("rb") as expected:
        for step in history:
            if step[0] == "read1":  # how much it returns is the reader's own choice
                part = file.read1(step[1])
                assert part == expected.read(len(part))
                assert part or not step[1] or expected.read(1) == b""
                file.seek(expected.tell())
            else:
                assert take(file, step) == take(expected, step)
            assert file.tell() == expected.tell()


def test_readers_of_other_formats_work(repository: cafcat.Repository, tmp_path: Path) -> None:
    archive = io.BytesIO()
    members = {f"m{number}": CONTENT.randbytes(20_000) for number in range(200)}
    with zipfile.ZipFile(archive, "w") as writer:
        for name, content in members.items():
            writer.writestr(name, content)
    write(repository, {"a.zip": archive.getvalue(), "lines": b"one\ntwo\n"})
    with repository.open("a.zip") as file, zipfile.ZipFile(file) as reader:
        assert {name: reader.read(name) for name in reader.namelist()} == members
    with repository.open("lines") as file:
        assert list(file) == [b"one\n", b"two\n"]
    with repository.open("lines") as file, io.TextIOWrapper(file) as text:
        assert text.read() == "one\ntwo\n"
    with repository.open("a.zip") as file, (tmp_path / "copy").open("wb") as copy:
        shutil.copyfileobj(file, copy)
    assert (tmp_path / "copy").read_bytes() == archive.getvalue()


@pytest.mark.parametrize("format", ["PNG", "JPEG", "TIFF", "WEBP"])
def test_pillow_opens_packed_images(repository: cafcat.Repository, format: str) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = image.frombytes("RGB", (640, 480), CONTENT.randbytes(640 * 480 * 3))
    file = io.BytesIO()
    pixels.save(file, format)
    write(repository, {"photo": file.getvalue()})
    with image.open(file) as expected, repository.open("photo") as opened, image.open(opened) as found:
        assert (found.format, found.size, found.tobytes()) == (format, (640, 480), expected.tobytes())


def test_h5py_opens_packed_files(repository: cafcat.Repository, tmp_path: Path) -> None:
    """HDF5 reads the parts of a file that it needs, and not in their order."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file.create_dataset("grid", data=list(range(300_000)), chunks=(1000,), compression="gzip")
        file.attrs["unit"] = "m"
    write(repository, {"data.h5": (tmp_path / "data.h5").read_bytes()})
    with repository.open("data.h5") as opened, h5py.File(opened, "r") as file:
        assert file.attrs["unit"] == "m"
        assert list(file["grid"][150_000:150_010]) == list(range(150_000, 150_010))
        assert list(file["grid"][::1000]) == list(range(0, 300_000, 1000))


def test_missing_files_and_folders_are_refused_at_once(packed: dict[str, cafcat.Repository]) -> None:
    with pytest.raises(NotFound):
        packed["caf"].open("files/nothing")
    with pytest.raises(NotFound):
        packed["caf"].open("files")
    with pytest.raises(InvalidInput):
        packed["caf"].open("a\0b")


def test_a_closed_file_cannot_be_used(packed: dict[str, cafcat.Repository]) -> None:
    file = packed["caf"].open("files/larger")
    file.close()
    file.close()
    for use in (file.read, file.tell, lambda: file.seek(0), lambda: file.readinto(bytearray(1))):
        with pytest.raises(ValueError, match="closed"):
            use()
    with packed["caf"].open("files/small") as file, pytest.raises(TypeError, match="pickle"):
        pickle.dumps(file.raw)


@pytest.mark.parametrize(("path", "at"), [("files/small", 0), ("files/larger", 0), ("files/larger", 2_999_999)])
def test_damage_is_noticed_before_the_last_bytes_of_a_file_are_returned(
    repository: cafcat.Repository, path: str, at: int
) -> None:
    write(repository, FILES)
    flip(repository, path, at)
    with repository.open(path) as file, pytest.raises(Corrupt) as caught:  # noqa: PT012 - at the last read
        while file.read(100_000):
            assert file.tell() < len(FILES[path])
    assert caught.value.path == path
    chunk = repository.locate(path).chunk
    hint = f"run cafcat repair --chunk {chunk}, with --from-source SRC if you have the original"
    assert caught.value.hint == hint
    with repository.open(path) as file, pytest.raises(Corrupt) as caught:
        file.read()
    assert caught.value.hint == hint
    with repository.open("files/whole") as file:
        assert file.read() == FILES["files/whole"]


def test_a_file_that_is_not_read_in_order_cannot_be_compared(repository: cafcat.Repository) -> None:
    """A part of a large file has no checksum of its own: this test documents the limit."""
    write(repository, FILES)
    flip(repository, "files/larger", 0)
    with repository.open("files/larger") as file:
        file.seek(1_000_000)
        assert file.read() == FILES["files/larger"][1_000_000:]


@pytest.mark.parametrize("path", ["files/small", "files/larger"])
def test_a_copy_is_read_if_the_chunk_is_missing(repository: cafcat.Repository, tmp_path: Path, path: str) -> None:
    write(repository, FILES)
    repository.copy(to=str(tmp_path / "second"))
    Path(repository.object_of(repository.locate(path))).unlink()
    with repository.open(path) as file:
        assert file.read(10) == FILES[path][:10]
        file.seek(0)
        assert file.read() == FILES[path]


def ranges_read(monkeypatch: pytest.MonkeyPatch, store: type[LocalStore | S3Store]) -> list[tuple[int, int]]:
    """Return a list to which each read of a store is added."""
    ranges: list[tuple[int, int]] = []
    read: Callable[..., bytes] = store.read

    def counted(self: Any, key: str, start: int, end: int) -> bytes:
        ranges.append((start, end))
        return read(self, key, start, end)

    monkeypatch.setattr(store, "read", counted)
    return ranges


def test_reads_from_a_bucket_grow_and_do_not_overlap(
    database_url: str,
    tmp_path: Path,
    s3_bucket: str,
    s3_proxy: S3Proxy,
    s3_proxy_environment: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    content = CONTENT.randbytes(20_000_000)
    store = f"s3://{s3_bucket}/chunks"
    with cafcat.open(database_url=database_url, home=tmp_path / "home", store=store) as repository:
        write(repository, {"large": content})
        ranges = ranges_read(monkeypatch, S3Store)
        with repository.open("large") as file:
            read = b"".join(iter(lambda: file.read(50_000), b""))
        assert read == content
        assert len(ranges) < 12
        assert [start for start, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
        ranges.clear()
        with repository.open("large") as file:
            for start in range(0, 20_000_000, 5_000_000):
                file.seek(start)
                assert file.read(100) == content[start : start + 100]
        assert sum(end - start for start, end in ranges) < 1_000_000, "a jump reads little ahead"


def test_contains_and_walk(repository: cafcat.Repository) -> None:
    write(repository, {"a/b/c": b"1", "a/b/d": b"2", "a/e": b"3", "a.txt": b"4", "f/g": b"5", "a/b.x": b"6"})
    assert "a/b/c" in repository
    assert all(name not in repository for name in ("a", "a/b", "nothing", "", "a\0b", 5))
    assert list(repository.walk()) == [
        ("", ["a", "f"], ["a.txt"]),
        ("a", ["b"], ["b.x", "e"]),
        ("a/b", [], ["c", "d"]),
        ("f", [], ["g"]),
    ]
    assert [folder for folder, _, _ in repository.walk("a")] == ["a", "a/b"]
    assert list(repository.walk("nothing")) == []
    seen = []
    for folder, folders, _ in repository.walk():
        seen.append(folder)
        folders[:] = [name for name in folders if name != "a"]
    assert seen == ["", "f"]


def test_walk_of_a_large_folder_comes_by_pages(repository: cafcat.Repository) -> None:
    files = {f"many/{number:05}": b"" for number in range(2_500)}
    write(repository, files)
    (_, folders, names), *others = repository.walk("many")
    assert (folders, len(names), others) == ([], 2_500, [])
