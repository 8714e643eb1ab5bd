"""Options that several verbs share."""

from typing import Annotated, Any, Final

import typer

from cafcat.support.arguments import parse_text
from cafcat.support.quantities import parse_size

__all__ = [
    "ONLY_IN_STORE",
    "FollowSymlinks",
    "InputFormat",
    "JoinStore",
    "NewSize",
    "NoUnpack",
    "Yes",
    "ZeroPadding",
    "prefix_option",
]


def prefix_option(help: str) -> Any:
    """--prefix: a folder of the catalog."""
    return typer.Option("--prefix", metavar="FOLDER", parser=parse_text, help=help, show_default=False)


ONLY_IN_STORE: Final = "Only chunks in this store: folder, URL or name."
"""What --store says of a verb that looks at chunks that are there."""

InputFormat = Annotated[
    str | None,
    typer.Option("--format", metavar="FORMAT", help="Format of the archive; else its content tells it."),
]
ZeroPadding = Annotated[
    bool, typer.Option("--zero-padding", help="End a CAR at the first section of size zero, as go-car can.")
]
FollowSymlinks = Annotated[bool, typer.Option("--follow-symlinks", help="Of sources, as for ingest.")]
NoUnpack = Annotated[bool, typer.Option("--no-unpack", help="Of sources, as for ingest.")]
NewSize = Annotated[
    int | None,
    typer.Option("--target-size", metavar="SIZE", parser=parse_size, help="Size of the new chunks, as 30GB."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do it, do not only say what would be done.")]
JoinStore = Annotated[
    bool, typer.Option("--join-store", help="Write into a store that has chunks of another catalog.")
]
