"""Random trees of files, and a comparison of the native part with Python, by listing and packing each file."""

import os
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from unittest import mock

from cafcat.catalog.binary_copy import HEADER, TRAILER
from cafcat.catalog.files.mapping import Mapping
from cafcat.formats.index_text import entry_text
from cafcat.model import Entry, NewFile, SourceFile
from cafcat.native.folder import ListedFiles
from cafcat.native.pack import FilePacker, Outcome, Packed, PackingState, file_packer
from cafcat.sources.local import column_walk
from cafcat.sources.local.columns import FileColumns, source_files
from cafcat.sources.local.directory import DirectorySource
from cafcat.sources.local.files import SMALL_BYTES
from cafcat.support.checksums import crc32c

__all__ = ["check_tree", "make_tree"]

USUAL = ["a", "a.b", "a-b", "a0", "b", "file-0001.dat", "é", "日本", "\U0001f600", " ", "~", "x" * 200]
UNUSUAL = ['"', "\\", "\n", "\t", "\x01", "\x7f", "\x80", "\ue000", "\uffff"]
INVALID = [os.fsdecode(name) for name in (b"\xff", b"\xc0\x80", b"a\xed\xa0\x80", b"\xf0\x9f")]
MOST_BYTES = 1 << 40


def make_tree(folder: Path, random: Random, *, others: bool | None = None) -> None:
    """Make a folder with some levels of files, and in half of the trees also links and pipes.

    Args:
        folder: The folder, which must not exist.
        random: Chooses the names and files.
        others: True to make links and pipes; None to choose.
    """
    others = random.random() < 0.5 if others is None else others
    folder.mkdir()
    names = random.sample(USUAL, random.randrange(len(USUAL)))
    if random.random() < 0.3:
        names += random.sample(UNUSUAL, 2)
    if others and random.random() < 0.1:
        names.append(random.choice(INVALID))
    for name in names:
        path = folder / name
        kind = random.random()
        if kind < 0.2 and len(folder.parts) < 7:
            make_tree(path, random, others=others)
        elif others and kind < 0.25:
            path.symlink_to(random.choice(["a", "..", "nothing", "/"]))
        elif others and kind < 0.28:
            os.mkfifo(path)
        else:
            _write(path, random)


def _write(path: Path, random: Random) -> None:
    size = random.choice((0, 1, 7, 100, 4096, random.randrange(300)))
    if random.random() < 0.02:
        size = random.choice((SMALL_BYTES, SMALL_BYTES + 1))
    path.write_bytes(random.randbytes(min(size, 300)).ljust(size, b"."))
    if random.random() < 0.2:
        time = random.choice((0, 1, -1, 999, -999, -1001, 10**18 + 1, -(10**18), 4 * 10**18))
        os.utime(path, ns=(time, time))


def _change(path: str, random: Random) -> None:
    """Change a file after it was listed."""
    way = random.randrange(9)
    if way == 8:  # only the status change time shows this
        times = os.stat(path)
        Path(path).write_bytes(Path(path).read_bytes()[::-1])
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    elif way < 3:
        data = Path(path).read_bytes()
        Path(path).write_bytes((data + b"more", data[:-1], data[::-1])[way])
    elif way == 3:
        os.utime(path, ns=(5, 5))
    else:
        Path(path).unlink()
        if way == 4:
            Path(path).symlink_to("a")
        elif way == 5:
            os.mkfifo(path)
        elif way == 6:
            Path(path).mkdir()


def check_tree(folder: Path, random: Random) -> Counter[str]:
    """List a tree and pack its files in both ways, and count how the native part ended.

    Some files are changed between listing and packing.

    Raises:
        AssertionError: The two ways differ.
    """
    source = DirectorySource(str(folder))
    with (
        mock.patch.object(column_walk, "_LEAST_FILES", random.choice((1, 4, 64))),
        mock.patch.object(column_walk, "_SMALL_FOLDER", random.choice((0, 3, 32))),
    ):
        batches = source.column_batches()
        assert batches is not None
        listed = list(batches)
    found = [item for batch in listed for item in batch]
    assert found == list(source.files())
    for item in found:
        if isinstance(item, SourceFile) and random.random() < 0.1:
            _change(item.locator, random)
    packer = file_packer()
    assert packer is not None
    outcomes: Counter[str] = Counter()
    for batch in listed:
        if isinstance(batch, FileColumns):
            for piece in [batch, *batch.pieces(random.randrange(1, 9), random.randrange(1, 5000))]:
                for part in piece.parts:
                    outcomes += _check_part(packer, source, part, random)
            assert [file for piece in batch.pieces(3, 1000) for file in piece] == list(batch)
    shutil.rmtree(folder)
    return outcomes


def _check_part(packer: FilePacker, source: DirectorySource, part: ListedFiles, random: Random) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    begin = random.randrange(part.begin, part.end)
    of_files = [path.rpartition("/")[0] + "/" for path, *_ in source_files(part.between(begin, part.end))]
    of_folders = [[path] * (end - first) for path, first, end in part.between(begin, part.end).in_folders()]
    assert [path for paths in of_folders for path in paths] == of_files
    begin = part.begin
    while begin < part.end:
        memory = memoryview(bytearray(random.choice((1, 200, 5000, SMALL_BYTES + 1))))
        most_bytes = random.choice((MOST_BYTES, MOST_BYTES, 600))
        position = random.choice((0, 5, 10**10)) if most_bytes == MOST_BYTES else 0
        index_bytes = random.choice((50, 10**9)) if most_bytes == MOST_BYTES else 50
        source_id = random.choice((None, 0, 77))
        files = part.between(begin, part.end)
        state = PackingState(
            3, source_id, position, random.random() < 0.5, index_bytes, 2**32, most_bytes, SMALL_BYTES
        )
        if random.random() < 0.3:  # it changes nothing
            most = random.choice((0, 100, SMALL_BYTES))
            end, _ = packer.prefetch(files, most_bytes=most)
            assert begin <= end <= part.end
        packed = packer.pack(files, data=memory, state=state)
        _check_packed(source, source_files(files), packed.end - begin, packed, memory, state)
        outcomes[packed.outcome.name] += 1
        outcomes["packed"] += packed.end - begin
        begin = packed.end + (packed.outcome is not Outcome.ALL_PACKED)
    return outcomes


def _check_packed(
    source: DirectorySource,
    files: Sequence[SourceFile],
    count: int,
    packed: Packed,
    memory: memoryview,
    state: PackingState,
) -> None:
    """Compare the packed files, and the reason for the end, with those of Python."""
    mapping = Mapping(state.chunk_id)
    mapping.set_source(state.source_id)
    data, text, end = b"", b"", state.position
    for file in files[:count]:
        read = source.opener._read_small(file)
        assert isinstance(read, NewFile), file
        data += read.content
        start, end = end, end + len(read.content)
        entry = Entry(file.path, start, end, crc32c(read.content), file.modified_ns)
        text += entry_text(b"," if text or state.has_entries else b"", entry)
        mapping.add(entry)
    assert bytes(memory[: packed.data_bytes]) == data
    assert packed.text == text
    assert packed.rows == b"".join(mapping.blocks())[len(HEADER) : -len(TRAILER)]
    assert state.index_bytes + len(text) <= state.most_index_bytes
    assert end + state.index_bytes + len(text) <= state.most_bytes or not count
    if packed.outcome is Outcome.ALL_PACKED:
        return
    file = files[count]
    read = source.opener._read_small(file)
    if packed.outcome is Outcome.IS_UNUSUAL:
        has_escapes = any(character in '"\\' or character < " " for character in file.path)
        assert isinstance(read, SourceFile) or has_escapes, file
    elif packed.outcome is Outcome.NO_ROOM:
        assert len(data) + file.size_bytes >= len(memory)
    else:
        assert isinstance(read, NewFile)
        entry = Entry(file.path, end, end + file.size_bytes, crc32c(read.content), file.modified_ns)
        added = file.size_bytes + len(text) + len(entry_text(b"," if text or state.has_entries else b"", entry))
        assert end + state.index_bytes + added > state.most_bytes
