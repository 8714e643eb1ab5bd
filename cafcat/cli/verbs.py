"""The verbs by name. A verb's module is imported at its first use: most calls need one verb, only the help needs
all."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperGroup

__all__ = ["COMPLETION_VARIABLE", "Verbs"]

COMPLETION_VARIABLE: Final = "_CAFCAT_COMPLETE"
"""The script that `cafcat completion` prints sets it when it runs cafcat to ask what could follow."""

_MODULES: Final = {
    "chunks": "catalog.chunks",
    "store": "catalog.store",
    "db": "catalog.db",
    "ingest": "ingest",
    "get": "reading.get",
    "cat": "reading.get",
    "extract": "reading.get",
    "ls": "reading.listing",
    "find": "reading.listing",
    "stat": "reading.listing",
    "locate": "reading.listing",
    "url": "reading.url",
    "snapshot": "reading.snapshot",
    "export": "archives.convert",
    "inspect": "archives.inspect",
    "convert": "archives.convert",
    "adopt": "archives.adopt",
    "units": "reading.units",
    "search": "reading.search",
    "runs": "catalog.runs",
    "stats": "catalog.runs",
    "rm": "custody.remove",
    "undelete": "custody.remove",
    "prune": "custody.prune",
    "repack": "custody.repack",
    "verify": "custody.verify",
    "repair": "custody.repair",
    "copy": "custody.copy",
    "recover": "custody.recover",
    "rebuild": "catalog.rebuild",
    "compare": "catalog.rebuild",
    "backup": "catalog.backup",
    "restore": "catalog.backup",
    "sql": "catalog.sql",
    "config": "admin.config",
    "completion": "admin.completion",
    "version": "admin.version",
}
"""In the order of the help; in which module of cafcat.cli each is."""


class _Commands(Mapping[str, Any]):
    """The commands by name, each made at its first use."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _command(name, _MODULES[name])
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


def _command(name: str, module: str) -> Any:
    """Return the command of one verb. Other verbs of its module are left out: each would cost a millisecond."""
    app = typer.Typer(rich_markup_mode=None)
    import_module(f"cafcat.cli.{module}").register(app)
    app.registered_commands = [command for command in app.registered_commands if command.name == name]
    return typer.main.get_group(app).commands[name]


class Verbs(TyperGroup):
    """The group of all verbs."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "commands": None})
        self.commands = _Commands()  # type: ignore[assignment]
