"""Classes that annotate the options of operations: how each option appears on the command line.

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
    "OptionGroup",
    "SharePassword",
    "Unless",
    "UnlessYes",
    "UnpackTars",
    "ZeroPadding",
    "folder_flag",
]


class Argument(NamedTuple):
    """Annotates a field that is a positional argument of the command.

    Attributes:
        metavar: Name of the argument in the help text. It ends with "..." if the argument has several values.
        help: Help text.
        parse: Converts a word to the value of the field; raises InvalidInput. None: the value is the word.
    """

    metavar: str
    help: str
    parse: Callable[[str], Any] | None = None


class Flag(NamedTuple):
    """Annotates a field that is a flag of the command, such as `--sample 5%`.

    Attributes:
        names: Names of the flag, separated by spaces.
        help: Help text.
        metavar: Name of the value in the help text; None for a switch without value.
        parse: Converts the text after the flag to the value of the field; raises InvalidInput. None: the text is
            converted to the type of the field.
        default: The default as a user would type it, which `parse` converts. None: the default of the field is
            used.
        least: Smallest allowed value of a number; None for no limit.
    """

    names: str
    help: str
    metavar: str | None = None
    parse: Callable[[str], Any] | None = None
    default: str | None = None
    least: int | None = None


class Unless(NamedTuple):
    """Annotates a field that a switch of the command makes false, such as `--no-unpack` for `unpack_tars`.

    Attributes:
        names: Names of the flag, separated by spaces.
        help: Help text.
    """

    names: str
    help: str


class OptionGroup(NamedTuple):
    """Annotates a field whose value is a dataclass of further options. Their flags are flags of the command.

    No other field of the options may have the name of one of their fields.
    """


class OnlyInStore(NamedTuple):
    """Annotates a field that gets the value of the flag `--store`, which all commands share."""


InputFormat = Annotated[
    str | None, Flag("--format", "Format of the archive. Default: found by the content.", "FORMAT")
]
ZeroPadding = Annotated[bool, Flag("--zero-padding", "End a CAR at the first section of size zero.")]
DryRun = Annotated[bool, Flag("--dry-run", "Change nothing; only show what would be done.")]
UnlessYes = Annotated[
    bool, Unless("--yes", "Do the work without a question. By default, the command shows the work and asks.")
]
JoinStore = Annotated[bool, Flag("--join-store", "Write into the store although another catalog uses it.")]
SharePassword = Annotated[
    bool, Flag("--share-password", "With --cluster: send the password of the database to the workers.")
]
FollowSymlinks = Annotated[bool, Flag("--follow-symlinks", "The sources were ingested with --follow-symlinks.")]
UnpackTars = Annotated[bool, Unless("--no-unpack", "The sources were ingested with --no-unpack.")]
NewChunkSize = Annotated[int | None, Flag("--target-size", "Size of new chunks, such as 30GB.", "SIZE", parse_size)]


def folder_flag(help: str) -> Flag:
    """Return the annotation of a field that is the flag `--prefix FOLDER`, for a folder of the catalog.

    Args:
        help: Help text of the flag.
    """
    return Flag("--prefix", help, "FOLDER", parse_text)
