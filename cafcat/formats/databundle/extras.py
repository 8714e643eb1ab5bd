"""Imports of optional libraries that only DataBundle needs."""

from importlib import import_module
from typing import Any

from cafcat.errors import NotInstalled

__all__ = ["import_extra"]


def import_extra(module: str) -> Any:
    """Return the module with this name.

    Raises:
        NotInstalled: the module is not installed. The message names cafcat's extra.
    """
    try:
        return import_module(module)
    except ImportError as error:
        name = ".".join(module.split(".")[:2]) if module.startswith("google.") else module
        message = f"DataBundle needs the library {name}, which is not installed"
        raise NotInstalled(message, hint="pip install 'cafcat[databundle]'") from error
