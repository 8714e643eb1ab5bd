"""Roots: the part of a file's location that its name in the catalog does not repeat.

Two files with the same name come from the same source if they have the same root. An ingest compares sizes and
times only between files of the same source: see docs/decisions/0024.
"""

from cafcat.sources.names import printable

__all__ = ["root_of"]


def root_of(location: str, path: str) -> str:
    """Return the root of a file.

    Args:
        location: Absolute path or URL of the file, or of its folder.
        path: Name of the file, or of its folder, in the catalog. "" for the folder that names are relative to.

    Returns:
        Printable text. "/srv/a/b" with the name "a/b" has the root "/srv/"; with the name "old/a/b", "/srv/ as
        old/".
    """
    located, named = location.split("/"), path.split("/") if path else []
    while located and named and located[-1] == named[-1]:
        located.pop()
        named.pop()
    root = "/".join([*located, ""]) if located != [""] else "/"
    return printable(f"{root} as {'/'.join(named)}/" if named else root)
