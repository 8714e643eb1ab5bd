"""Small files, extracted with the native part and by Python: always the same files, errors and reports."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cafcat.model import Location
from cafcat.progress import Progress
from cafcat.reading import durable_files
from cafcat.reading.extract import Extraction
from cafcat.reading.output_tree import OutputTree
from cafcat.reading.outputs import Output
from cafcat.reading.reader import FileReader
from cafcat.stores.local.store import LocalStore
from cafcat.support.checksums import crc32c
from tests.worlds.native import both_ways, needs_library

pytestmark = needs_library

NAMES = ("a", "b", "c", "ü\n", "x" * 255, "x" * 256, "..", "", "d/a", "d/b", "d/e/c", "taken/c")
TIMES = st.integers(-(2**62), 2**62) | st.sampled_from([0, -1, 999_999_999, -1_000_000_001, None])


HOUR_NS = 3_600_000_000_000
NO_COPIES = SimpleNamespace(
    copies=SimpleNamespace(replicas_of=lambda _: [], has_copies_of=lambda _: False, lacking_changes=lambda _: 0),
    files=SimpleNamespace(folders_among=lambda _: set(), locate_many=lambda _: {}),
    is_snapshot=False,
)
"""A catalog of chunks without copies, in which no file is found."""


def location(path: str, start: int, data: bytes, modified_ns: int | None, *, is_damaged: bool) -> Location:
    checksum = crc32c(data) ^ is_damaged
    return Location(path, start, start + len(data), checksum, modified_ns, UUID(int=1), "", "k", "caf", None, None)


@st.composite
def archives(draw: st.DrawFn) -> tuple[bytes, list[Location]]:
    """Return the bytes of a chunk and its files, some of them damaged, with gaps between them."""
    data, files = b"", []
    for path in draw(st.lists(st.sampled_from(NAMES), unique=True)):
        content = draw(st.binary(max_size=9))
        data += draw(st.sampled_from([b"", b"", b"gap"]))
        is_damaged = draw(st.integers(0, 7)) == 0
        files.append(location(path, len(data), content, draw(TIMES), is_damaged=is_damaged))
        data += content
    return data, files


def tree_of(folder: Path) -> dict[str, Any]:
    """Return kind, permissions, time and content of all that is in a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else None
        is_new = abs(time.time_ns() - status.st_mtime_ns) < HOUR_NS
        found[str(path.relative_to(folder))] = (status.st_mode, None if is_new else status.st_mtime_ns, content)
    return found


def extracted(data: bytes, files: Sequence[Location], *, overwrite: bool, strip: int, most: int) -> Any:
    """Extract into a folder in which one name of a file and one of a folder are taken."""
    with TemporaryDirectory() as name, TemporaryDirectory() as chunks, pytest.MonkeyPatch.context() as patch:
        patch.setattr(durable_files, "_descriptors_of_a_batch", lambda: most)
        store = LocalStore(Path(chunks))
        (Path(chunks) / "k").write_bytes(data)
        reader = FileReader(NO_COPIES, {store.url: store}, Progress())  # type: ignore[arg-type]
        folder = Path(name)
        (folder / "b").write_bytes(b"mine")
        (folder / "taken").write_bytes(b"mine, too")
        os.utime(folder / "b", (1, 1))
        os.utime(folder / "taken", (1, 1))
        tree: OutputTree[Location]
        with OutputTree(Output(folder, overwrite)) as tree:
            extraction = Extraction(reader, tree, progress=Progress(), strip=strip)
            extraction.write([location._replace(store=store.url) for location in files])
            extraction.commit()
        report = extraction.report
        failed = sorted((problem.path, problem.kind, problem.message) for problem in report.failed)
        counts = (report.files, report.bytes, report.files_failed, report.files_skipped)
        return tree_of(folder), [str(one).replace(name, "").replace(chunks, "") for one in failed], counts


@given(archives(), st.booleans(), st.integers(0, 2), st.sampled_from([1, 3, 2048]))
def test_both_ways_extract_the_same(
    archive: tuple[bytes, list[Location]], overwrite: bool, strip: int, most: int
) -> None:
    data, files = archive
    both_ways(lambda: extracted(data, files, overwrite=overwrite, strip=strip, most=most))
