"""Running an operation from a verb: its options as flags, its progress, and Ctrl-C."""

import enum
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import MISSING, Field, fields
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

import typer

from cafcat.cli.call import Call
from cafcat.cli.errors import INTERRUPTED
from cafcat.cli.progress import ShownProgress
from cafcat.cli.stopping import StopOnSignal, interrupted_by_signals
from cafcat.support.parameters import Argument, Flag, OnlyInStore, Unless

if TYPE_CHECKING:
    from cafcat.session import Session

__all__ = ["operation", "options_of", "parameters_of"]


@contextmanager
def operation(
    call: Call,
    progress: ShownProgress,
    *,
    if_interrupted: str | Callable[[], str],
    at_hand: str | None = None,
    finishes: bool = True,
) -> Iterator["Session"]:
    """Open a session for an operation that reports to `progress`, and that signals can end.

    Args:
        call: The call of the command.
        progress: Shows progress and events.
        if_interrupted: What is left after an interrupt, for the message; or a function that returns this.
        at_hand: The object that is finished after the first signal; None if a signal ends the operation at once.
        finishes: False if the object at hand is dropped after the first signal.

    Raises:
        typer.Exit: The operation was interrupted; the message was printed.
    """
    from cafcat.progress import Warnings
    from cafcat.session import Session

    stop = None if at_hand is None else StopOnSignal(at_hand, as_json=call.json, finishes=finishes)
    opened = closing(Session.open(call.settings(), progress, Warnings(call.warn)))
    with stop or interrupted_by_signals(), opened as session, progress:
        progress.stop = stop
        try:
            yield session
        except KeyboardInterrupt:
            progress.end()
            left = if_interrupted if isinstance(if_interrupted, str) else if_interrupted()
            call.output.notice(f"interrupted; {left}")
            raise typer.Exit(INTERRUPTED) from None


def parameters_of(options: type) -> list[inspect.Parameter]:
    """Return the parameters of a command for the options of an operation."""
    return [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
        for field, kind, shown in _shown(options)
        for annotation, default in [_parameter(field, kind, shown)]
        if not isinstance(shown, OnlyInStore)
    ]


def options_of(call: Call, options: type, values: Mapping[str, Any]) -> Any:
    """Return the options of an operation from the values of a command's parameters. Raises InvalidInput."""
    given = {field.name: _value(call, field, shown, values) for field, _, shown in _shown(options)}
    return options(**{name: value for name, value in given.items() if value is not MISSING})


def _shown(options: type) -> Iterator[tuple["Field[Any]", Any, Any]]:
    """Give each field that is a parameter of the command, with its type and how it is shown."""
    for field in fields(options):
        if get_origin(field.type) is Annotated:
            kind, shown, *_ = get_args(field.type)
            yield field, kind, shown


def _parameter(field: "Field[Any]", kind: Any, shown: Any) -> tuple[Any, Any]:
    """Return annotation and default of a parameter."""
    is_required = field.default is MISSING
    if isinstance(shown, Argument):
        word: Any = list[str] if shown.metavar.endswith("...") else str
        info = typer.Argument(metavar=shown.metavar, parser=shown.parse, help=shown.help, show_default=False)
        return (
            (Annotated[word, info], inspect.Parameter.empty)
            if is_required
            else (Annotated[word | None, info], None)
        )
    if isinstance(shown, Unless):
        return Annotated[bool, typer.Option(*shown.names.split(), help=shown.help)], False
    if not isinstance(shown, Flag):
        return None, None
    parse = None if shown.default is not None else shown.parse
    word, default = (str, shown.default) if shown.default is not None else _word(field, kind)
    info = typer.Option(
        *shown.names.split(),
        metavar=shown.metavar,
        parser=parse,
        help=shown.help,
        min=shown.least,
        show_default=default != "",
    )
    return Annotated[word, info], inspect.Parameter.empty if is_required else default


def _word(field: "Field[Any]", kind: Any) -> tuple[Any, Any]:
    """Return the type of a flag's value for typer, and its default."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    for one in kinds:
        if isinstance(one, type) and issubclass(one, enum.Enum):
            return one, field.default
        if get_origin(one) is not None:  # a sequence
            return list[str] | None, None
    return (kinds[0] | None if type(None) in kinds else kinds[0]), field.default


def _value(call: Call, field: "Field[Any]", shown: Any, values: Mapping[str, Any]) -> Any:
    """Return the value of a field; MISSING for its default."""
    if isinstance(shown, OnlyInStore):
        return call.settings().store_from_flag
    value = values[field.name]
    if isinstance(shown, Unless):
        return not value
    if isinstance(shown, Flag) and shown.default is not None and shown.parse is not None:
        return shown.parse(value)
    if value is None:
        return MISSING if field.default is not MISSING else None
    return tuple(value) if isinstance(value, list) else value
