"""Runs an operation for a command: makes flags from its options, shows its progress, and handles Ctrl-C."""

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
from cafcat.support.parameters import Argument, Flag, OnlyInStore, OptionGroup, Unless
from cafcat.support.traffic import TRAFFIC

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
    makes_catalog: bool = False,
) -> Iterator["Session"]:
    """Open a session for the operation that the `with` block runs, and handle SIGINT, SIGTERM and SIGHUP.

    With `at_hand`, the first signal makes `session.stopping` true, and the second makes `session.checkpoint` raise
    KeyboardInterrupt. Without `at_hand`, the first signal raises KeyboardInterrupt at once, and the second is
    ignored. In both cases, the third signal ends the process.

    Args:
        call: The call of the command.
        progress: Shows the progress and events of the operation.
        if_interrupted: Text about the state after a KeyboardInterrupt, which is printed after "interrupted; "; or a
            function that returns this text.
        at_hand: Name of the object that is finished after the first signal, for the message, such as "any open
            chunk". None: the first signal raises KeyboardInterrupt.
        finishes: False if the first signal drops the object instead of finishing it.
        makes_catalog: True for an operation that has work to do in a new, empty catalog.

    Raises:
        CatalogUnavailable: The embedded database is used, its home does not exist, and `makes_catalog` is false.
        typer.Exit: A KeyboardInterrupt ended the operation, and the message was printed. The exit code is 130.
    """
    from cafcat.progress import Warnings
    from cafcat.session import Session

    if not makes_catalog:
        call.require_home()
    stop = None if at_hand is None else StopOnSignal(at_hand, as_json=call.json, finishes=finishes)
    opened = closing(Session.open(call.settings(), progress, Warnings(call.warn)))
    with stop or interrupted_by_signals(), opened as session, progress:
        progress.stop = stop
        try:
            with TRAFFIC.bandwidth(session.settings.bandwidth):
                yield session
        except KeyboardInterrupt:
            progress.end()
            left = if_interrupted if isinstance(if_interrupted, str) else if_interrupted()
            call.output.notice(f"interrupted; {left}")
            raise typer.Exit(INTERRUPTED) from None


def parameters_of(options: type) -> list[inspect.Parameter]:
    """Return the arguments and flags of a command, as parameters for typer, for the options of an operation.

    Args:
        options: The dataclass of the options. Only fields that are annotated with a class of
            `cafcat.support.parameters` become parameters; one annotated with OnlyInStore does not.
    """
    found: list[inspect.Parameter] = []
    for field, kind, shown in _shown(options):
        if isinstance(shown, OptionGroup):
            found += parameters_of(kind)
        elif not isinstance(shown, OnlyInStore):
            annotation, default = _parameter(field, kind, shown)
            named = inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default)
            found.append(named.replace(annotation=annotation))
    return found


def options_of(call: Call, options: type, values: Mapping[str, Any]) -> Any:
    """Return the options of an operation from the values that typer parsed.

    Args:
        call: The call of the command. Its `--store` is the value of fields that are annotated with OnlyInStore.
        options: The dataclass of the options.
        values: The values of the parameters that `parameters_of` returned, by name.

    Raises:
        InvalidInput: A value is invalid, or the options contradict each other.
    """
    given = {
        field.name: options_of(call, kind, values)
        if isinstance(shown, OptionGroup)
        else _value(call, field, shown, values)
        for field, kind, shown in _shown(options)
    }
    return options(**{name: value for name, value in given.items() if value is not MISSING})


def _shown(options: type) -> Iterator[tuple["Field[Any]", Any, Any]]:
    """Yield the fields of the options that the command line sets.

    With each field come its type and the class of `cafcat.support.parameters` with which it is annotated.
    """
    for field in fields(options):
        if get_origin(field.type) is Annotated:
            kind, shown, *_ = get_args(field.type)
            yield field, kind, shown


def _parameter(field: "Field[Any]", kind: Any, shown: Any) -> tuple[Any, Any]:
    """Return the annotation and the default of the typer parameter for a field.

    Args:
        field: The field of the options.
        kind: The type of the field.
        shown: The Argument, Flag or Unless with which the field is annotated. For anything else, the result is
            (None, None).
    """
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
    """Return the type with which typer parses the values of a flag, and the default of the flag.

    Args:
        field: The field of the options.
        kind: The type of the field. A sequence becomes a flag that can be repeated.
    """
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    for one in kinds:
        if isinstance(one, type) and issubclass(one, enum.Enum):
            return one, field.default
        if get_origin(one) is not None:  # a sequence
            return list[str] | None, None
    return (kinds[0] | None if type(None) in kinds else kinds[0]), field.default


def _value(call: Call, field: "Field[Any]", shown: Any, values: Mapping[str, Any]) -> Any:
    """Return the value of a field from the command line; MISSING if the field is to have its default.

    Args:
        call: The call of the command, for `--store`.
        field: The field of the options.
        shown: The Argument, Flag, Unless or OnlyInStore with which the field is annotated.
        values: The values of the command's parameters, by name.
    """
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
