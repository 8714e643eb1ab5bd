"""Many files in the order in which they are named: read_many, and streams of tar and zip."""

import io
import json
import os
import random
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import cafcat
from cafcat.errors import CafcatError, Corrupt, InvalidInput, NotFound
from cafcat.reading import given_order
from cafcat.reading.archive_stream import ERRORS_MEMBER
from cafcat.stores.local.store import LocalStore
from tests.worlds.archives.damage import flip
from tests.worlds.catalog_world import commit

CONTENT = random.Random(7)
FILES = {f"tree/{n % 7}/n{n:03}": CONTENT.randbytes(n * 13 % 4000) for n in range(200)}
FILES |= {"tree/empty": b"", "tree/large": CONTENT.randbytes(9_000_000), "tree/ü" + "x" * 200: b"long name"}
LARGE = "tree/large"
MODIFIED_NS = 1_795_255_200_123_456_000


@pytest.fixture
def repository(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[cafcat.Repository]:
    monkeypatch.chdir(tmp_path)
    for path, content in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
        os.utime(tmp_path / path, ns=(0, MODIFIED_NS))
    with cafcat.open(database_url=database_url, home=tmp_path, store=str(tmp_path / "store")) as repository:
        repository.ingest(["tree"])
        yield repository


def shuffled() -> list[str]:
    names = list(FILES)
    random.Random(3).shuffle(names)
    return names


def damage(repository: cafcat.Repository, tmp_path: Path, path: str) -> None:
    [chunk] = (tmp_path / "store").glob("*.caf")
    flip(chunk, repository.locate(path).end_byte - 1)


def members(data: bytes, format: str) -> list[tuple[str, bytes]]:
    if format == "zip":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            assert archive.testzip() is None
            return [(info.filename, archive.read(info)) for info in archive.infolist()]
    with tarfile.open(fileobj=io.BytesIO(data), mode="r|") as tar:
        return [(info.name, given(tar.extractfile(info)).read()) for info in tar]


def given(file: "io.IOBase | None") -> "io.IOBase":
    assert file is not None
    return file


def test_files_come_in_the_order_of_their_names(repository: cafcat.Repository) -> None:
    names = ["none", *shuffled(), "tree/empty", "tree/3/n003", "none", "\ud800"]
    found = list(repository.read_many(names, order="given"))
    assert [name for name, _ in found] == names
    assert all(isinstance(content, CafcatError) or content == FILES[name] for name, content in found)
    errors = [(name, type(content)) for name, content in found if isinstance(content, CafcatError)]
    assert errors == [("none", NotFound), ("none", NotFound), ("\ud800", InvalidInput)]
    assert dict(repository.read_many([LARGE, "tree/3/n003"], -5, order="given")) == {
        LARGE: FILES[LARGE][-5:],
        "tree/3/n003": FILES["tree/3/n003"][-5:],
    }


def test_another_order_is_refused(repository: cafcat.Repository) -> None:
    with pytest.raises(InvalidInput, match="archive or given"):
        repository.read_many([], order="random")  # type: ignore[arg-type]


def test_near_files_share_reads_in_the_given_order(
    repository: cafcat.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    read = LocalStore.read

    def counted(self: LocalStore, key: str, start: int, end: int) -> bytes:
        reads.append(end - start)
        return read(self, key, start, end)

    monkeypatch.setattr(LocalStore, "read", counted)
    small = [name for name in shuffled() if name != LARGE]
    assert dict(repository.read_many(small, order="given")) == {name: FILES[name] for name in small}
    assert len(reads) <= 3, reads


def test_memory_is_bounded_by_windows(repository: cafcat.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """With small windows, the same files come in the same order."""
    monkeypatch.setattr(given_order, "_WINDOW_BYTES", 10_000)
    names = shuffled()
    items = repository._batch(0, None)._items(names)
    windows = list(given_order.windows_of(items))
    assert [item for window in windows for item in window] == items
    for window in windows:
        sizes = [len(FILES[name]) for name, _ in window if name != LARGE]
        assert sum(sizes) <= 10_000
    assert list(repository.read_many(names, order="given")) == [(name, FILES[name]) for name in names]


def test_a_damaged_file_costs_only_itself(repository: cafcat.Repository, tmp_path: Path) -> None:
    damage(repository, tmp_path, "tree/3/n003")
    damage(repository, tmp_path, LARGE)
    found = dict(repository.read_many(shuffled(), order="given"))
    failed = {name: type(content) for name, content in found.items() if isinstance(content, CafcatError)}
    assert failed.keys() == {"tree/3/n003", LARGE}
    assert all(issubclass(kind, Corrupt) for kind in failed.values())
    assert all(found[name] == FILES[name] for name in FILES.keys() - failed)


@pytest.mark.parametrize("format", ["tar", "zip"])
@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_an_archive_has_the_files_in_the_given_order(
    repository: cafcat.Repository, format: str, on_error: str
) -> None:
    names = [*shuffled(), "tree/empty"]
    stream = repository.stream_archive(names, format=format, on_error=on_error)  # type: ignore[arg-type]
    blocks = list(stream)
    assert max(map(len, blocks)) < 2 << 20
    assert members(b"".join(blocks), format) == [(name, FILES[name]) for name in names]
    assert (stream.file_count, stream.failed) == (len(names), [])


@pytest.mark.parametrize("format", ["tar", "zip"])
def test_names_of_members_have_no_leading_slash(repository: cafcat.Repository, format: str) -> None:
    commit(repository, {"/of an adopted archive": b"adopted"})
    data = b"".join(
        repository.stream_archive(["/tree/empty", f"./{LARGE}", "/of an adopted archive"], format=format)
    )
    assert [name for name, _ in members(data, format)] == ["tree/empty", LARGE, "of an adopted archive"]


@pytest.mark.parametrize("format", ["tar", "zip"])
def test_files_that_fail_are_named_in_the_last_member(
    repository: cafcat.Repository, tmp_path: Path, format: str
) -> None:
    damage(repository, tmp_path, "tree/3/n003")
    damage(repository, tmp_path, LARGE)
    names = ["none", "tree/2/n002", LARGE, "tree/3/n003", "tree/4/n004"]
    stream = repository.stream_archive(names, format=format, on_error="skip")
    *found, (last, document) = members(b"".join(stream), format)
    assert found == [(name, FILES[name]) for name in ("tree/2/n002", "tree/4/n004")]
    assert last == ERRORS_MEMBER
    rows = [(row["path"], row["kind"]) for row in json.loads(document)]
    assert rows == [("none", "not_found"), (LARGE, "corrupt"), ("tree/3/n003", "corrupt")]
    assert [name for name, _ in stream.failed] == [path for path, _ in rows]


@pytest.mark.parametrize("format", ["tar", "zip"])
@pytest.mark.parametrize(("path", "error"), [("none", NotFound), (LARGE, Corrupt), ("tree/3/n003", Corrupt)])
def test_the_first_error_ends_the_archive_without_its_end(
    repository: cafcat.Repository, tmp_path: Path, format: str, path: str, error: type[CafcatError]
) -> None:
    damage(repository, tmp_path, "tree/3/n003")
    damage(repository, tmp_path, LARGE)
    blocks: list[bytes] = []
    with pytest.raises(error):
        blocks.extend(repository.stream_archive(["tree/4/n004", path], format=format))
    with pytest.raises((tarfile.ReadError, zipfile.BadZipFile)):
        members(b"".join(blocks)[:-1], format)


def test_times_and_permissions(repository: cafcat.Repository) -> None:
    data = b"".join(repository.stream_archive(["tree/3/n003"]))
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        [info] = tar
        assert (info.pax_headers["mtime"], info.mode, info.isreg()) == ("1795255200.123456000", 0o644, True)
    assert len(data) % 10_240 == 0
    data = b"".join(repository.stream_archive(["tree/3/n003"], format="zip"))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        [row] = archive.infolist()
    assert (row.date_time, row.external_attr >> 16) == ((2026, 11, 21, 10, 0, 0), 0o100644)


def test_formats_and_reactions_that_do_not_exist(repository: cafcat.Repository) -> None:
    with pytest.raises(InvalidInput, match="tar or zip"):
        repository.stream_archive([], format="rar")
    with pytest.raises(InvalidInput, match="skip or fail"):
        repository.stream_archive([], on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="not one name"):
        repository.stream_archive("tree/empty")


@pytest.mark.parametrize("format", ["tar", "zip"])
def test_an_empty_archive_is_valid(repository: cafcat.Repository, format: str) -> None:
    assert members(b"".join(repository.stream_archive([], format=format)), format) == []
