"""Roots: the part of a file's location that its name in the catalog does not repeat.

Two files with the same name come from the same source if they have the same root. If a file has the name, size and
time of one in the catalog that came from another source, an ingest reads it to compare the content: see
docs/decisions/0024.
"""

from cafcat.sources.names import printable

__all__ = ["root_of"]


def root_of(location: str, path: str) -> str:
    """Return the root of a file: its location without the parts at the end that its name repeats.

    If the name begins with other parts, they follow after " as ".

    Args:
        location: Absolute path or URL of the file, or of its folder.
        path: Name of the same file or folder in the catalog. "" for the folder that names are relative to.

    Returns:
        Printable text. The location "/srv/a/b" with the name "a/b" has the root "/srv/"; with the name "old/a/b",
        it has the root "/srv/ as old/".
    """
    located, named = location.split("/"), path.split("/") if path else []
    while located and named and located[-1] == named[-1]:
        located.pop()
        named.pop()
    root = "/".join([*located, ""]) if located != [""] else "/"
    return printable(f"{root} as {'/'.join(named)}/" if named else root)
