"""Search for paths by their beginning, or by a pattern."""

import re

from cafcat.catalog.console.files import search as search_paths
from cafcat.reading.globs import regex_of_glob, regex_of_path_glob
from cafcat.serve.console.page import Content, Page, Visit

__all__ = ["PAGE"]

_MATCHES = 100
"""Matches of one page."""
_WILD = re.compile(r"[*?\[\\]")


def search(visit: Visit) -> Content:
    """Return the paths that begin with a text; or, if it has wildcards, those that match the pattern."""
    typed, after = visit.text("q"), visit.text("after")
    content: Content = {"title": "Search", "q": typed, "paths": None, "last": None, "is_pattern": False}
    if not typed:
        return content
    pattern = typed.removeprefix("/")
    wild = _WILD.search(pattern)
    is_name = wild is not None and "/" not in pattern  # a pattern without a slash is for the last part of the path
    prefix = pattern if wild is None else "" if is_name else pattern[: wild.start()]
    regex = None if wild is None else regex_of_glob(pattern) if is_name else regex_of_path_glob(pattern)
    paths: list[str] = []
    last = None
    for low, high in visit.visitor.visible.ranges(prefix):
        if high is not None and after >= high:
            continue
        found = search_paths(visit.queries, max(low, after + "\x01"), high, regex, _MATCHES - len(paths))
        paths += found.paths
        last = found.last
        if last is not None:
            break
    return content | {"paths": paths, "last": last, "is_pattern": wild is not None}


PAGE = Page("search", "Search", search, in_navigation=True, shows_all=False)
