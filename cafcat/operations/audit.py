"""The audit trail: an event of the kind `command` for each operation that may change the catalog or a store."""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from functools import wraps
from itertools import islice
from typing import Any, Final, TypeVar
from uuid import UUID

from cafcat.catalog.database_url import has_secret
from cafcat.errors import CafcatError, CatalogOutdated, CatalogUnavailable, InvalidInput
from cafcat.session import Session
from cafcat.settings.stores import redact_store_url

__all__ = ["audited", "recorded"]

_Options = TypeVar("_Options")
_Report = TypeVar("_Report")


_NOTHING_DONE: Final = (InvalidInput, CatalogUnavailable, CatalogOutdated)
"""Errors of operations that ended before they changed anything, or whose database does not answer."""
_MOST_ITEMS: Final = 20
_OF_DATABASES: Final = ("postgres://", "postgresql://")
_MOST_CHARACTERS: Final = 1000


@contextmanager
def audited(session: Session, name: str, options: Mapping[str, Any]) -> Iterator[None]:
    """Record an operation when the `with` block ends. A dry run is not recorded.

    The result of the operation stays if the event cannot be written: that is a warning.

    Args:
        session: The session of the operation.
        name: Name of the command, such as "rm".
        options: The options that were given. They are recorded as JSON values.
    """
    if options.get("dry_run"):
        yield
        return
    try:
        yield
    except _NOTHING_DONE:
        raise
    except BaseException as error:
        with suppress(CafcatError):  # the error of the operation is raised
            session.catalog.events.record_command(name, _as_json(options) | {"failed": type(error).__name__})
        raise
    try:
        session.catalog.events.record_command(name, _as_json(options))
    except CafcatError as error:
        session.progress.warn(f"the event of `{name}` could not be recorded: {error}")


def recorded(run: Callable[[Session, _Options], _Report]) -> Callable[[Session, _Options], _Report]:
    """Decorate the function `run` of an operation, so that each call is recorded under the name of its package."""
    name = run.__module__.split(".")[-2]

    @wraps(run)
    def recording(session: Session, options: _Options) -> _Report:
        noted = _with_noted_paths(options)
        with audited(session, name, _given(noted)):
            return run(session, noted)

    return recording


class _NotedNames:
    """Names that an operation reads while it runs. The first ones are kept for the event.

    Attributes:
        first: The first 20 names that were read.
        count: Number of names that were read.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = names
        self.first: list[str] = []
        self.count = 0

    def __iter__(self) -> Iterator[str]:
        self.first, self.count = [], 0
        for name in self._names:
            if self.count < _MOST_ITEMS:
                self.first.append(name)
            self.count += 1
            yield name


def _with_noted_paths(options: Any) -> Any:
    """Return options whose `paths` are noted while the operation reads them, unless they are a list."""
    paths = getattr(options, "paths", ())
    return options if isinstance(paths, Collection) else dataclasses.replace(options, paths=_NotedNames(paths))


def _given(options: Any) -> dict[str, Any]:
    """Return those fields of an operation's options that differ from their defaults.

    Args:
        options: The options, a dataclass.
    """
    found = {}
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        if value != default and value not in ((), []):
            found[field.name] = value
    return found


def _as_json(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _recorded(value) for name, value in options.items()}


def _without_secrets(text: str) -> str:
    """Return a text without passwords. Of a URL that is not of a database, user and query are left out, too."""
    if "://" not in text and "password" not in text:
        return text
    if text.startswith(_OF_DATABASES) or "://" not in text:
        return "(a URL with a secret)" if has_secret(text) else text
    address, question_mark, _ = redact_store_url(text).partition("?")
    return f"{address}?***" if question_mark else address


def _recorded(value: Any) -> Any:
    """Return a value as JSON value. Long lists and texts are cut, and URLs with secrets are left out."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str | UUID):
        return _storable(_without_secrets(str(value))[:_MOST_CHARACTERS])
    if isinstance(value, _NotedNames):
        return _first_items(value.first, value.count)
    if isinstance(value, Sequence):
        return _first_items(value, len(value))
    return _storable(str(getattr(value, "name", type(value).__name__)))


def _first_items(items: Sequence[Any], count: int) -> list[Any]:
    first = [_recorded(item) for item in islice(items, _MOST_ITEMS)]
    return first if count <= _MOST_ITEMS else [*first, f"and {count - _MOST_ITEMS} more"]


def _storable(text: str) -> str:
    """Return a text that PostgreSQL can store: NUL and undecodable bytes are escaped."""
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")
