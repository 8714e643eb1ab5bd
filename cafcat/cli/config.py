"""`cafcat config`."""

from typing import Any

import typer

from cafcat.cli.call import Call, verb

__all__ = ["register"]


def config(call: Call) -> None:
    """Show every setting and where it came from. Passwords are not shown."""
    from cafcat.settings import KEYS, redact

    settings = call.settings()
    values: dict[str, Any] = {name: getattr(settings, name) for name in KEYS}
    values["home"] = str(settings.home)
    for name in ("database_url", "store"):
        values[name] = values[name] and redact(values[name])
    document = {name: {"value": values[name], "origin": settings.origins[name]} for name in KEYS}
    lines = (f"{name} = {_shown(values[name])}  ({settings.origins[name]})" for name in KEYS)
    call.output.show(document, map(call.output.shown, lines))


def _shown(value: Any) -> str:
    return "none: the embedded database" if value is None else str(value)


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    verb(app, "config")(config)
