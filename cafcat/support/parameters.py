"""How an option of an operation appears on the command line.

Each operation declares its options once, as a frozen dataclass. A field that is annotated with one of these classes
is an argument or a flag of the command; any other field is for callers of the Python API only.
"""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

from cafcat.support.arguments import parse_text
from cafcat.support.quantities import parse_size

__all__ = [
    "Argument",
    "DryRun",
    "Flag",
    "FollowSymlinks",
    "InputFormat",
    "JoinStore",
    "NewChunkSize",
    "OnlyInStore",
    "Unless",
    "UnlessYes",
    "UnpackTars",
    "ZeroPadding",
    "folder_flag",
]


class Argument(NamedTuple):
    """A positional argument.

    Attributes:
        metavar: Name in the help text. A sequence of values ends with "...".
        help: Help text.
        parse: Converts a word to the value of the field; raises InvalidInput.
    """

    metavar: str
    help: str
    parse: Callable[[str], Any] | None = None


class Flag(NamedTuple):
    """A flag such as `--sample 5%`.

    Attributes:
        names: Names of the flag, separated by spaces.
        help: Help text.
        metavar: Name of the value in the help text; None for a switch without value.
        parse: Converts the value of the flag to the value of the field; raises InvalidInput.
        default: The default as text, where the value of the field is not what a user types.
        least: Smallest value of a number.
    """

    names: str
    help: str
    metavar: str | None = None
    parse: Callable[[str], Any] | None = None
    default: str | None = None
    least: int | None = None


class Unless(NamedTuple):
    """A switch that makes the field false, such as `--no-unpack` for `unpack_tars`.

    Attributes:
        names: Names of the flag, separated by spaces.
        help: Help text.
    """

    names: str
    help: str


class OnlyInStore(NamedTuple):
    """The field gets the value of the shared flag `--store`."""


InputFormat = Annotated[
    str | None, Flag("--format", "Format of the archive. Default: found by the content.", "FORMAT")
]
ZeroPadding = Annotated[bool, Flag("--zero-padding", "End a CAR at the first section of size zero.")]
DryRun = Annotated[bool, Flag("--dry-run", "Change nothing; only show the result.")]
UnlessYes = Annotated[bool, Unless("--yes", "Do the work. Without this flag, the command only shows the result.")]
JoinStore = Annotated[bool, Flag("--join-store", "Write into the store although another catalog uses it.")]
FollowSymlinks = Annotated[bool, Flag("--follow-symlinks", "The sources were ingested with --follow-symlinks.")]
UnpackTars = Annotated[bool, Unless("--no-unpack", "The sources were ingested with --no-unpack.")]
NewChunkSize = Annotated[int | None, Flag("--target-size", "Size of new chunks, such as 30GB.", "SIZE", parse_size)]


def folder_flag(help: str) -> Flag:
    """Return the flag `--prefix` for a folder of the catalog."""
    return Flag("--prefix", help, "FOLDER", parse_text)
