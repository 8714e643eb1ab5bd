"""The pages of the console, in the order of the navigation. A new page is a module, a template and a line here."""

from typing import Final

from cafcat.serve.console.page import Page
from cafcat.serve.console.pages import (
    browse,
    chunk,
    chunks,
    file,
    findings,
    overview,
    run,
    runs,
    search,
    stores,
    views,
)

__all__ = ["HOME", "PAGES"]

PAGES: Final[tuple[Page, ...]] = (
    overview.PAGE,
    browse.PAGE,
    search.PAGE,
    chunks.PAGE,
    runs.PAGE,
    findings.PAGE,
    stores.PAGE,
    views.PAGE,
    file.PAGE,
    chunk.PAGE,
    run.PAGE,
    views.VIEW_PAGE,
)
HOME: Final = overview.PAGE.name
"""Name of the page that visitors see first."""
