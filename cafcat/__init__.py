"""Packs many small files into few large archives, and reads any file back with one look-up and one range read.

import cafcat

with cafcat.open() as repository:
    repository.ingest(["photos"])
    data = repository.read("photos/2026/cat.jpg")
    for location in repository.list("photos/2026"):
        print(location.path, location.size_bytes)
"""

TYPE_CHECKING = False  # typing's own takes milliseconds, in which Ctrl-C would not count yet
if TYPE_CHECKING:
    from cafcat import errors, model
    from cafcat.errors import CafcatError
    from cafcat.operations.inspect.run import Inspection
    from cafcat.progress import Progress
    from cafcat.repository import Repository, open
    from cafcat.settings.settings import Settings
    from cafcat.snapshots import Snapshot
    from cafcat.without_catalog import convert, inspect

__version__ = "0.1.0"

__all__ = [
    "CafcatError",
    "Inspection",
    "Progress",
    "Repository",
    "Settings",
    "Snapshot",
    "__version__",
    "convert",
    "errors",
    "inspect",
    "model",
    "open",
]

_LATER = {
    "CafcatError": "errors",
    "Inspection": "operations.inspect.run",
    "Progress": "progress",
    "Repository": "repository",
    "convert": "without_catalog",
    "inspect": "without_catalog",
    "open": "repository",
    "Settings": "settings",
    "Snapshot": "snapshots",
}
_MODULES = ("errors", "model")


def __getattr__(name: str) -> object:
    """Return a public name of the package, and import its module at the first use.

    `import cafcat` alone is therefore fast: `cafcat --help` does not wait for the libraries of the database.
    Raises AttributeError for any other name.
    """
    if name not in _LATER and name not in _MODULES:
        raise AttributeError(f"module 'cafcat' has no attribute {name!r}")
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"cafcat.{name}")
    return getattr(import_module(f"cafcat.{_LATER[name]}"), name)
