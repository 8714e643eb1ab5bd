"""Files in columns, and the pieces of them that workers get."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from cafcat.native.folder import FILE, ListedFiles, ListedFolder
from cafcat.sources.local.columns import FileColumns

SIZES = st.lists(st.integers(0, 50), min_size=1, max_size=12)


def folder(number: int, sizes: list[int], before: int) -> ListedFiles:
    """Return the files of a folder, of which the first ones do not belong to the part."""
    names = [f"top/{number:02}/{name:02}" for name in range(before + len(sizes))]
    text, ends = b"", array("q")
    for name in names:
        text += name.encode() + b"\0"
        ends.append(len(text))
    all_sizes = array("q", [7] * before + sizes)
    times = array("q", range(len(names)))
    kinds = bytes([FILE]) * len(names)
    listed = ListedFolder(text, ends.tobytes(), all_sizes.tobytes(), times.tobytes(), times.tobytes(), kinds)
    return ListedFiles(listed, before, len(names), b"/there/", len(b"top/"), [f"top/{number:02}/"], [len(names)])


def as_one_by_one(files: FileColumns, most_files: int, most_bytes: int) -> list[list[str]]:
    pieces: list[list[str]] = []
    count = size_bytes = 0
    for file in files:
        if not pieces or count == most_files or size_bytes + file.size_bytes > most_bytes:
            pieces.append([])
            count = size_bytes = 0
        pieces[-1].append(file.path)
        count, size_bytes = count + 1, size_bytes + file.size_bytes
    return pieces


@given(
    st.lists(st.tuples(SIZES, st.integers(0, 2)), min_size=1, max_size=5), st.integers(1, 20), st.integers(1, 150)
)
def test_pieces_are_as_large_as_allowed(
    folders: list[tuple[list[int], int]], most_files: int, most_bytes: int
) -> None:
    parts = [folder(number, sizes, before) for number, (sizes, before) in enumerate(folders)]
    files = FileColumns(parts)
    pieces = list(files.pieces(most_files, most_bytes))
    assert [[file.path for file in piece] for piece in pieces] == as_one_by_one(files, most_files, most_bytes)
    assert [file for piece in pieces for file in piece] == list(files)
