"""The command `cafcat config`: its flags and output."""

import os
from typing import TYPE_CHECKING, Any, Final

import typer

from cafcat.cli.call import Call, verb
from cafcat.support.quantities import format_size

if TYPE_CHECKING:
    from cafcat.settings.settings import NamedStore, Settings

__all__ = ["register"]

_NONE: Final = {
    "database_url": "none: the embedded database",
    "bandwidth": "none: no limit",
    "read_database_url": "none: look-ups use database_url",
    "lock_timeout": "none: ten minutes; 0 for rebuild and restore",
}
"""Texts for settings without a value."""
_SIZES: Final = ("target_size", "upload_memory")
_RATES: Final = ("bandwidth",)
_SECONDS: Final = ("max_staleness", "lock_timeout")


def config(call: Call) -> None:
    """Show all settings and the stores of the configuration file, with their origins. Passwords in URLs are hidden.

    `cafcat store ls` lists the stores of the catalog, with the names that `cafcat store add` gave them.

    Example: cafcat config --json
    """
    from cafcat.native.library import why_unused

    settings = call.settings()
    origins = settings.origins
    values = _values(settings)
    stores = {name: _options(store) for name, store in settings.stores.items()}
    file = origins["config"]
    is_there = os.path.isfile(file)
    document: dict[str, Any] = {"config": {"value": file, "origin": "read" if is_there else "does not exist"}}
    document |= {name: {"value": value, "origin": origins[name]} for name, value in values.items()}
    document["stores"] = {
        name: {**options, "origin": origins[f"stores.{name}"]} for name, options in stores.items()
    }
    reason = why_unused()
    document["native"] = {"value": reason is None, "origin": reason or "default"}
    shown = {name: _shown(name, value) for name, value in values.items()}
    if settings.store_name is not None:
        shown["store"] = f"{settings.store_name}: the store of this name in the catalog, else {values['store']}"
    shown |= {f"stores.{name}": _line(options) for name, options in stores.items()}
    lines = [f"config = {file}  ({document['config']['origin']})"]
    lines += [f"{name} = {text}  ({origins[name]})" for name, text in shown.items()]
    lines.append("native = used  (default)" if reason is None else f"native = not used  ({reason})")
    call.output.show(document, map(call.output.shown, lines))


def _values(settings: "Settings") -> dict[str, Any]:
    from cafcat.settings.database import redacted
    from cafcat.settings.settings import KEYS
    from cafcat.settings.stores import redact_store_url

    values = {name: getattr(settings, name) for name in KEYS}
    values["home"] = str(settings.home)
    values["store"] = redact_store_url(values["store"])
    for name in ("database_url", "read_database_url"):
        values[name] = values[name] and redacted(values[name])
    return values


def _options(store: "NamedStore") -> dict[str, str]:
    return {"url": store.url, **store.options}


def _line(options: dict[str, str]) -> str:
    return ", ".join(value if name == "url" else f"{name} {value}" for name, value in options.items())


def _shown(name: str, value: Any) -> str:
    if value is None:
        return _NONE[name]
    if isinstance(value, bool):
        return str(value).lower()  # as cafcat.toml has it
    if name in _SIZES:
        return f"{value} bytes ({format_size(value)})"
    if name in _RATES:
        return f"{value} bytes per second ({format_size(value)}/s)"
    return f"{value} seconds" if name in _SECONDS else str(value)


def register(app: typer.Typer) -> None:
    """Add `cafcat config` to the commands of the program."""
    edit = "`cafcat config` shows all settings; change them in the file that its first line names"
    verb(app, "config", config, hints={"": edit})
