"""Imports the optional libraries that only DataBundle needs."""

from importlib import import_module
from typing import Any

from cafcat.errors import NotInstalled

__all__ = ["import_extra"]


def import_extra(module: str) -> Any:
    """Import and return a module of an optional library.

    Args:
        module: full name of the module, such as "google.protobuf.message".

    Raises:
        NotInstalled: the library is not installed. The hint names the extra of cafcat that installs it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        name = ".".join(module.split(".")[:2]) if module.startswith("google.") else module
        message = f"DataBundle needs the library {name}, which is not installed"
        raise NotInstalled(message, hint=NotInstalled.remedy("databundle")) from error
