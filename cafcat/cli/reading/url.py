"""The command `cafcat url`: its flags and output."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cafcat.cli.call import Call, verb
from cafcat.cli.choosing import FilesFrom, Null, Paths, choose
from cafcat.cli.reading.each import each
from cafcat.errors import InvalidInput
from cafcat.support.arguments import parse_duration

if TYPE_CHECKING:
    from cafcat.packed_files import PackedFiles

__all__ = ["Expires", "Presign", "register", "seconds_signed"]

Presign = Annotated[
    bool, typer.Option("--presign", help="Sign the URL: it gives access to this file for a limited time.")
]
Expires = Annotated[
    int | None,
    typer.Option(
        "--expires",
        metavar="TIME",
        parser=parse_duration,
        help="Lifetime of the signed URL, such as 15m. Default: 1h.",
    ),
]
_HOUR_SECONDS = 3600


def seconds_signed(presign: bool, expires: int | None) -> int | None:
    """Return how long a signed URL is valid, in seconds, from the flags `--presign` and `--expires`.

    Args:
        presign: True if `--presign` was given.
        expires: The value of `--expires` in seconds; None for the default, an hour.

    Returns:
        The seconds; None without `--presign`, because unsigned URLs do not expire.

    Raises:
        InvalidInput: `--expires` was given without `--presign`.
    """
    if expires is not None and not presign:
        hint = "add --presign, or leave --expires out"
        raise InvalidInput("--expires was given without --presign, but only signed URLs expire", hint=hint)
    return (expires or _HOUR_SECONDS) if presign else None


def url(
    call: Call,
    *,
    paths: Paths = None,
    files_from: FilesFrom = None,
    null: Null = False,
    presign: Presign = False,
    expires: Expires = None,
) -> int:
    """Print the URL of the archive that contains a file. With --presign: a signed URL of the file itself.

    Example: cafcat url --presign --expires 15m photos/a.jpg
    """
    seconds = seconds_signed(presign, expires)
    chosen = choose(paths, files_from, null=null)
    return each(call, chosen, lambda repository, path: _show(call, repository, path, seconds))


def _show(call: Call, repository: "PackedFiles", path: str, seconds: int | None) -> None:
    location = repository.locate(path)
    if seconds is None:
        address = repository.url_of(location)
        span = {"start_byte": location.start_byte, "end_byte": location.end_byte}
        call.output.show({"path": location.path, "url": address} | span, [address])
        return
    signed = repository.signed_url(location, seconds)
    call.output.show({"path": location.path} | asdict(signed), [signed.url])
    if not call.json:
        headers = ", ".join(f"{name}: {value}" for name, value in signed.headers.items())
        call.output.notice(f"valid until {signed.expires_at}, with the header {headers}")


def register(app: typer.Typer) -> None:
    """Add `cafcat url` to the commands of the program."""
    verb(app, "url", url, reads=True)
