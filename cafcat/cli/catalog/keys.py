"""The commands of `cafcat keys`, for the access keys of the S3 server."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cafcat.cli.call import Call, group, verb
from cafcat.cli.confirming import confirm
from cafcat.cli.reading.missing_names import warn_of_empty_folders
from cafcat.support.arguments import parse_duration, parse_text

if TYPE_CHECKING:
    from cafcat.catalog.access_keys import AccessKey

__all__ = ["register"]


_SECOND_SEAL: Final = (
    "the catalog has access keys of another home, and this home got a sealing key of its own. A server with one of "
    "these homes refuses the keys of the other: copy seal.key, or set CAFCAT_SEAL_KEY"
)


def add(
    call: Call,
    *,
    prefix: Annotated[
        str,
        typer.Option(
            "--prefix",
            metavar="P",
            parser=parse_text,
            help="Folder that the key can list and read.",
            show_default=False,
        ),
    ] = ".",
    expires: Annotated[
        int | None,
        typer.Option(
            "--expires", metavar="TIME", parser=parse_duration, help="How long the key is valid: 12h, 30d."
        ),
    ] = None,
) -> None:
    """Make an access key for the S3 server, and print it with its secret, which is not shown again.

    Example: cafcat keys add --prefix photos/2026 --expires 30d
    """
    from cafcat.operations.audit import audited
    from cafcat.serve.s3.keys import add_key, has_keys_of_other_homes

    options = {"prefix": prefix, "expires": expires}
    with call.repository() as repository, audited(repository.session, "keys add", options):
        is_second_seal = has_keys_of_other_homes(repository.session)
        key = add_key(repository.session, prefix, expires)
        warn_of_empty_folders(call, repository.session.catalog, [key.prefix])
    if is_second_seal:
        call.warn(_SECOND_SEAL)
    call.output.fields(asdict(key), asdict(key) | {"prefix": key.prefix or "(all files)"})


def list_(call: Call) -> None:
    """List the access keys, without their secrets.

    Example: cafcat keys list
    """
    is_empty = True
    with call.files() as repository:
        for key in repository.session.catalog.access_keys.all():
            is_empty = False
            call.output.show(key._asdict(), [call.output.shown(_row(key))])
    if is_empty:
        call.note("there are no access keys; `cafcat keys add` makes one")


def _row(key: "AccessKey") -> str:
    end = key.revoked_at or key.expires_at or "-"
    return f"{key.access_key_id}  {key.state:7}  {key.created_at}  {end:27}  {key.prefix or '(all files)'}"


def revoke(
    call: Call,
    *,
    access_key_id: Annotated[
        str,
        typer.Argument(metavar="ID", parser=parse_text, help="Name of the access key, as `keys list` shows it."),
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Revoke the key without a question.")] = False,
) -> None:
    """Revoke an access key for ever. Running servers refuse it within 5 seconds.

    The command shows the key and asks first, unless --yes is given.

    Example: cafcat keys revoke CAFCATEXAMPLE --yes
    """
    from cafcat.operations.audit import audited
    from cafcat.serve.s3.keys import key_named, revoke_key

    with call.repository() as repository:
        key = key_named(repository.session, access_key_id)
        if not yes:
            call.summarize(key._asdict(), [call.output.shown(_plan(key))])
            confirm(call, f"Revoke the access key {call.output.shown(access_key_id)} for ever?")
        with audited(repository.session, "keys revoke", {"id": access_key_id}):
            revoke_key(repository.session, access_key_id)
    call.summarize({"revoked": access_key_id}, [call.output.shown(f"revoked {access_key_id}")])


def _plan(key: "AccessKey") -> str:
    return f"would revoke the {key.state} key {key.access_key_id} for {key.prefix or 'all files'}"


def register(app: typer.Typer) -> None:
    """Add the group `cafcat keys` to the commands of the program."""
    help = "Make, list and revoke access keys of the S3 server. Without a command, the keys are listed."
    below = group(app, "keys", help, alone=list_)
    for name, function in (("add", add), ("list", list_), ("revoke", revoke)):
        verb(below, name, function)
