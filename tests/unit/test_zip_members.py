"""Zip archives of more than 4 GiB, and with more than 65,535 members."""

import zipfile
import zlib
from pathlib import Path

from cafcat.reading.zip_members import ZipMembers


def test_large_members_and_offsets(tmp_path: Path) -> None:
    """The large member is a hole in the file: its bytes need no disk."""
    members = ZipMembers()
    path = tmp_path / "x.zip"
    with path.open("wb") as file:
        for name, size in (("large", 5 << 30), ("exact", 0xFFFFFFFF)):
            file.write(members.header(name, size, None, 0))
            file.seek(size, 1)
        file.write(members.header("small", 3, None, zlib.crc32(b"abc")) + b"abc")
        file.write(b"".join(members.end()))
    with zipfile.ZipFile(path) as archive:
        assert {info.filename: info.file_size for info in archive.infolist()} == {
            "large": 5 << 30,
            "exact": 0xFFFFFFFF,
            "small": 3,
        }
        assert archive.read("small") == b"abc"
        with archive.open("large") as large:
            assert large.read(100) == bytes(100)


def test_many_members(tmp_path: Path) -> None:
    members = ZipMembers()
    path = tmp_path / "x.zip"
    with path.open("wb") as file:
        file.write(b"".join(members.header(f"{n}", 0, None, 0) for n in range(70_000)))
        file.write(b"".join(members.end()))
    with zipfile.ZipFile(path) as archive:
        assert len(archive.infolist()) == 70_000


def test_times_that_zip_cannot_have(tmp_path: Path) -> None:
    members = ZipMembers()
    path = tmp_path / "x.zip"
    with path.open("wb") as file:
        for name, when in (("old", -(10**18)), ("new", 10**19), ("none", None)):
            file.write(members.header(name, 0, when, 0))
        file.write(b"".join(members.end()))
    with zipfile.ZipFile(path) as archive:
        years = {info.filename: info.date_time[0] for info in archive.infolist()}
    assert years == {"old": 1980, "new": 2107, "none": 1980}
