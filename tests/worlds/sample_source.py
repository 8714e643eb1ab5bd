"""Packed files that data sets read: a repository, or a snapshot that finds no database."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import cafcat
from tests.worlds.catalog_world import commit

__all__ = ["sample_source"]


@contextmanager
def sample_source(
    kind: str, repository: cafcat.Repository, files: Mapping[str, bytes], folder: Path
) -> Iterator[cafcat.Repository | cafcat.Snapshot]:
    """Pack files into two chunks, and yield the repository, or a snapshot of it for any other kind.

    Args:
        kind: "repository", or the name of a snapshot.
        repository: An empty repository.
        files: Contents by path.
        folder: For the snapshot.
    """
    names = list(files)
    for some in (names[:50], names[50:]):
        commit(repository, {name: files[name] for name in some})
    if kind == "repository":
        yield repository
        return
    repository.snapshot(folder / "taken")
    with cafcat.Snapshot(folder / "taken", database_url="postgresql:///nowhere", home=folder) as snapshot:
        yield snapshot
