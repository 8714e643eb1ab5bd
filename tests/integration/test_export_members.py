"""Exports as tar and zip: contents, other programs, damage, copies and streams."""

import io
import os
import random
import shutil
import subprocess
import tarfile
import threading
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

import cafcat
from cafcat.errors import Conflict, Corrupt, InvalidInput, NotFound, OutputFailed, Unsupported
from cafcat.formats.caf.format import CAF
from cafcat.testing.formats import BytesArchive
from tests.integration.test_snapshot_writing import Meanwhile, files_of_at_most, left_in
from tests.worlds.archives.damage import flip
from tests.worlds.archives.written_formats import WRITTEN
from tests.worlds.catalog_world import MODIFIED, commit
from tests.worlds.copy_world import World, folder_of, world

__all__ = ["world"]

LARGE = random.Random(3).randbytes(9 << 20)
FILES = {
    "tree/empty": b"",
    "tree/a.txt": b"first",
    "tree/large": LARGE,
    "tree/medium": LARGE[: 3 << 20],
    f"tree/{'long/' * 60}name": b"long",
    f"tree/{'x' * 150}.txt": b"long name",
    "tree/日本/é \n\\": b"odd",
    "top.txt": b"top",
}


def in_tar(archive: tarfile.TarFile) -> dict[str, bytes]:
    return {info.name: (archive.extractfile(info) or pytest.fail("no file")).read() for info in archive}


def in_archive(path: Path) -> dict[str, bytes]:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
            return {info.filename: archive.read(info) for info in archive.infolist()}
    with tarfile.open(path, errorlevel=2) as tar:
        return in_tar(tar)


@pytest.mark.parametrize("format", ["tar", "zip"])
def test_files_of_chunks_of_every_format(local: cafcat.Repository, tmp_path: Path, format: str) -> None:
    for name in WRITTEN:
        with local.writer(format=name) as writer:
            for number, (path, content) in enumerate(FILES.items()):
                writer.add(f"{name}/{path}", content, modified_ns=MODIFIED + number * 1000)
    progress = Meanwhile(lambda: None)
    report = local.with_progress(progress).export([], tmp_path / f"all.{format}")
    expected = {f"{name}/{path}": content for name in WRITTEN for path, content in FILES.items()}
    assert in_archive(tmp_path / f"all.{format}") == expected
    size = (tmp_path / f"all.{format}").stat().st_size
    assert (report.format, report.files, report.size_bytes) == (format, len(expected), size)
    assert report.bytes == sum(map(len, expected.values()))
    assert (progress.files, progress.bytes) == (report.files, report.bytes)


def test_times(local: cafcat.Repository, tmp_path: Path) -> None:
    moment = datetime(2024, 2, 29, 12, 34, 56, tzinfo=UTC)
    nanoseconds = int(moment.timestamp()) * 10**9 + 123_456_000
    with local.writer() as writer:
        writer.add("a", b"a", modified_ns=nanoseconds)
        writer.add("old", b"old", modified_ns=-1_000_000_000)
    local.export([], tmp_path / "all.tar")
    local.export([], tmp_path / "all.zip")
    with tarfile.open(tmp_path / "all.tar") as tar:
        assert {info.name: info.mtime for info in tar} == {"a": nanoseconds / 10**9, "old": -1}
    with zipfile.ZipFile(tmp_path / "all.zip") as archive:
        assert archive.getinfo("a").date_time == (2024, 2, 29, 12, 34, 56)


def test_other_programs_extract_them(local: cafcat.Repository, tmp_path: Path) -> None:
    """GNU tar, bsdtar and unzip, as far as they are installed."""
    names = [name for name in FILES if "\n" not in name]  # unzip replaces newlines
    commit(local, {name: FILES[name] for name in names})
    local.export([], tmp_path / "all.tar")
    local.export([], tmp_path / "all.zip")
    commands = {
        "tar": ["tar", "-xf", "all.tar", "-C"],
        "bsdtar": ["bsdtar", "-xf", "all.tar", "-C"],
        "unzip": ["unzip", "-q", "all.zip", "-d"],
    }
    for program, command in commands.items():
        if shutil.which(program):
            (tmp_path / program).mkdir()
            done = subprocess.run([*command, program], cwd=tmp_path, capture_output=True, check=False)
            assert (done.returncode, done.stderr) == (0, b"")
            assert {name: (tmp_path / program / name).read_bytes() for name in names} == {
                name: FILES[name] for name in names
            }
            assert (tmp_path / program / "top.txt").stat().st_mtime // 1 == MODIFIED // 10**9
    if shutil.which("unzip"):
        assert subprocess.run(["unzip", "-tq", "all.zip"], cwd=tmp_path, capture_output=True).returncode == 0


@pytest.mark.parametrize("format", ["tar", "zip", "caf", "car"])
def test_patterns_select_files_and_folders(local: cafcat.Repository, tmp_path: Path, format: str) -> None:
    commit(local, {path: path.encode() for path in ("p/2023/a", "p/2024/a", "p/2024/b/c", "p/x[1]/d", "q")})
    report = local.export(["p/202?", "p/2024/b", "p/x[1]", "**/q"], tmp_path / "some", format=format)
    assert (report.files, report.prefixes) == (5, ("p/202?", "p/2024/b", "p/x[1]", "**/q"))
    local.export(["p/*/a"], tmp_path / "two", format=format)
    if format in ("tar", "zip"):
        assert set(in_archive(tmp_path / "two")) == {"p/2023/a", "p/2024/a"}
    with pytest.raises(NotFound) as caught:
        local.export(["p/*", "none*"], tmp_path / "none", format=format)
    assert caught.value.path == "none*"
    assert left_in(tmp_path) == {"some", "two"}


@pytest.mark.parametrize("format", ["tar", "zip"])
@pytest.mark.parametrize("damaged", ["tree/a.txt", "tree/medium", "tree/large"])
def test_a_damaged_file_leaves_nothing(world: World, tmp_path: Path, damaged: str, format: str) -> None:
    chunk = commit(world.repository, FILES)
    (tmp_path / "old").write_bytes(b"old")
    flip(folder_of(world.first) / f"{chunk}.caf", world.repository.locate(damaged).end_byte - 1)
    with pytest.raises(Corrupt) as caught:
        world.repository.export([], tmp_path / "old", format=format, overwrite=True)
    assert (caught.value.path, caught.value.chunk) == (damaged, chunk)
    assert (tmp_path / "old").read_bytes() == b"old"
    assert not list(tmp_path.glob(".cafcat*"))
    stream = io.BytesIO()
    with pytest.raises(Corrupt):
        world.repository.export([], stream, format=format)
    assert not stream.getvalue().endswith(bytes(1024))
    assert b"PK\5\6" not in stream.getvalue()


@pytest.mark.parametrize("format", ["tar", "zip"])
@pytest.mark.parametrize("damaged", ["tree/a.txt", "tree/medium", "tree/large"])
def test_a_damaged_file_is_read_from_a_copy(world: World, tmp_path: Path, damaged: str, format: str) -> None:
    chunk = commit(world.repository, FILES)
    assert world.copy().copied == 1
    flip(folder_of(world.first) / f"{chunk}.caf", world.repository.locate(damaged).end_byte - 1)
    progress = Meanwhile(lambda: None)
    report = world.repository.with_progress(progress).export([], tmp_path / "new", format=format)
    assert in_archive(tmp_path / "new") == FILES
    assert (progress.files, progress.bytes) == (report.files, report.bytes)


@pytest.mark.parametrize("format", ["tar", "zip", "caf"])
def test_a_stream_has_the_bytes_of_the_file(local: cafcat.Repository, tmp_path: Path, format: str) -> None:
    commit(local, FILES)
    local.export([], tmp_path / "file", format=format)
    reading, writing = os.pipe()
    received: list[bytes] = []

    def receive() -> None:
        with open(reading, "rb") as pipe:
            received.append(pipe.read())

    thread = threading.Thread(target=receive)
    thread.start()
    with open(writing, "wb", buffering=0) as pipe:
        report = local.export([], pipe, format=format)
        assert not pipe.closed
    thread.join()
    assert (report.output, report.size_bytes) == ("-", len(received[0]))
    if format == "caf":
        archive = BytesArchive(received[0], "stream")
        reader = CAF.reader(archive)
        assert {entry.path: b"".join(reader.open(entry)) for entry in reader.entries()} == FILES
    else:
        assert received[0] == (tmp_path / "file").read_bytes()


def test_a_tar_is_readable_without_seeking(local: cafcat.Repository) -> None:
    commit(local, FILES)
    stream = io.BytesIO()
    local.export([], stream, format="tar")
    stream.seek(0)
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        assert in_tar(tar) == FILES
    assert len(stream.getvalue()) % 10_240 == 0


def test_refusals(local: cafcat.Repository, tmp_path: Path) -> None:
    commit(local, {"a": b"a"})
    stream = io.BytesIO()
    with pytest.raises(Unsupported, match="cannot be written to this output"):
        local.export([], stream, format="car")
    with pytest.raises(InvalidInput, match="no file name") as caught:
        local.export([], stream)
    assert caught.value.hint == "use --format tar"
    with pytest.raises(InvalidInput) as caught:
        local.export([], tmp_path / "x", format="rar")
    assert str(caught.value.hint).endswith(", tar, zip")
    with pytest.raises(InvalidInput, match="no known suffix") as caught:
        local.export([], tmp_path / "x.rar")
    assert "tar (.tar), zip (.zip)" in str(caught.value.hint)
    (tmp_path / "there.tar").write_bytes(b"precious")
    with pytest.raises(Conflict):
        local.export([], tmp_path / "there.tar")
    with pytest.raises(OutputFailed), open(tmp_path / "there.tar", "rb") as reading:
        local.export([], reading, format="tar")
    assert stream.getvalue() == b""
    assert (tmp_path / "there.tar").read_bytes() == b"precious"


def test_an_empty_catalog(local: cafcat.Repository, tmp_path: Path) -> None:
    for format in ("tar", "zip"):
        assert local.export([], tmp_path / f"all.{format}").files == 0
        assert in_archive(tmp_path / f"all.{format}") == {}


@pytest.mark.parametrize("format", ["tar", "zip"])
def test_full_disk_leaves_nothing(local: cafcat.Repository, tmp_path: Path, format: str) -> None:
    commit(local, {"one": LARGE[:300_000], "two": LARGE[:3_000_000]})
    with pytest.raises(OutputFailed), files_of_at_most(1_000_000):
        local.export([], tmp_path / "all", format=format)
    assert left_in(tmp_path) == set()
