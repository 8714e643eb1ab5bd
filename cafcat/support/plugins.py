"""Finds objects that are registered by name: built-in objects in a table, third-party objects as entry points."""

from collections.abc import Mapping
from importlib import import_module

__all__ = ["find_plugin", "plugin_names"]


def find_plugin(group: str, name: str, built_in: Mapping[str, str]) -> object | None:
    """Import and return the object that is registered under a name, such as a kind of store.

    Entry points are searched only for names that are not built in, because that takes some milliseconds. Of several
    entry points with the name, the first is used. Exceptions of the import pass through.

    Args:
        group: Group of the entry points, as "cafcat.stores".
        name: Name of the object, as "s3".
        built_in: "MODULE:VARIABLE" of each built-in object, by name.

    Returns:
        The object, or None if nothing is registered under the name.
    """
    if name in built_in:
        module, _, variable = built_in[name].partition(":")
        found: object = getattr(import_module(module), variable)
        return found
    from importlib.metadata import entry_points

    for point in entry_points(group=group, name=name):
        loaded: object = point.load()
        return loaded
    return None


def plugin_names(group: str, built_in: Mapping[str, str]) -> list[str]:
    """Return the names of all registered objects, built-in and third-party, in alphabetical order.

    Args:
        group: Group of the entry points, as "cafcat.stores".
        built_in: "MODULE:VARIABLE" of each built-in object, by name.
    """
    from importlib.metadata import entry_points

    return sorted({*built_in, *(point.name for point in entry_points(group=group))})
