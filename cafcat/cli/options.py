"""Flags and help texts that several commands share. `cafcat/cli/call.py` has the flags of all commands."""

from typing import Annotated, Final

import typer

__all__ = ["ONLY_IN_STORE", "InputFormat", "JoinStore", "ZeroPadding"]

ONLY_IN_STORE: Final = "Only use objects in this store: a folder, URL or name."
"""Help text of `--store` for commands that work on existing chunks."""

InputFormat = Annotated[
    str | None,
    typer.Option("--format", metavar="FORMAT", help="Format of the archive. Default: found by the content."),
]
ZeroPadding = Annotated[bool, typer.Option("--zero-padding", help="End a CAR at the first section of size zero.")]
JoinStore = Annotated[
    bool, typer.Option("--join-store", help="Write into the store although another catalog uses it.")
]
