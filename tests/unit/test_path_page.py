"""A page of paths."""

import pytest

from cafcat.catalog.files.path_page import PathPage


def test_usual_paths() -> None:
    page = PathPage("a\nb/é\nc d".encode(), 3)
    assert len(page) == 3
    assert page[-1] == "c d"
    assert list(page) == ["a", "b/é", "c d"] == page[:]
    assert page[1] == "b/é"
    assert page.lines == "a\nb/é\nc d".encode()
    assert page.size_bytes == 10


@pytest.mark.parametrize("page", [PathPage(b"", 0), PathPage.of([])])
def test_no_paths(page: PathPage) -> None:
    assert not page
    assert list(page) == []
    with pytest.raises(IndexError):
        page[-1]


def test_paths_with_newlines() -> None:
    page = PathPage.of(["a\nb", "c\\n", "\n"])
    assert page.lines is None
    assert list(page) == ["a\nb", "c\\n", "\n"]
    assert page[-1] == "\n"
    assert page.size_bytes == 9


def test_a_list_without_newlines_has_lines() -> None:
    page = PathPage.of(["a", "é"])
    assert page.lines == "a\né".encode()
    assert page[-1] == "é"
