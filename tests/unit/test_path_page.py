"""A page of paths, as PostgreSQL sends them."""

import pytest

from cafcat.catalog.files.path_page import PathPage


def test_usual_paths() -> None:
    page = PathPage([b"a\n", "b/é\nc d\n".encode()], 3)
    assert len(page) == 3
    assert page[-1] == "c d"
    assert list(page) == ["a", "b/é", "c d"] == page[:]
    assert page[1] == "b/é"
    assert page.lines == "a\nb/é\nc d\n".encode()


def test_no_paths() -> None:
    page = PathPage([], 0)
    assert not page
    assert list(page) == []
    with pytest.raises(IndexError):
        page[-1]


def test_paths_with_escaped_characters() -> None:
    """As COPY writes them, in its text format."""
    page = PathPage([rb"a\nb" + b"\n", rb"c\\n\t" + b"\n" + rb"\b\f\r\v" + b"\n"], 3)
    assert page.lines is None
    assert list(page) == ["a\nb", "c\\n\t", "\b\f\r\v"]
    assert page[-1] == "\b\f\r\v"
