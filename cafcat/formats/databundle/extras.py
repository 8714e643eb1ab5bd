"""Libraries that only DataBundle needs."""

from importlib import import_module
from typing import Any

from cafcat.errors import NotInstalled

__all__ = ["extra"]


def extra(module: str) -> Any:
    """The module. Raises NotInstalled, which names the extra, if it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        name = ".".join(module.split(".")[:2]) if module.startswith("google.") else module
        message = f"DataBundle needs {name} for this, which is not installed"
        raise NotInstalled(message, hint="pip install 'cafcat[databundle]'") from error
