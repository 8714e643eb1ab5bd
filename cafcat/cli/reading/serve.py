"""The command `cafcat serve`: its flags, and the lines that it prints at its start."""

from pathlib import Path
from typing import Annotated

import typer

from cafcat.cli.call import Call, verb
from cafcat.errors import NotInstalled

__all__ = ["register"]


def serve(
    call: Call,
    *,
    host: Annotated[str, typer.Option("--host", metavar="HOST", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="PORT", help="Port for HTTP; 0 for a free one.")] = 8320,
    workers: Annotated[int, typer.Option("--workers", metavar="N", help="Number of processes.")] = 1,
    redirect: Annotated[
        bool, typer.Option("--redirect", help="Send clients that ask for it to signed URLs of the store.")
    ] = False,
    access_log: Annotated[
        Path | None, typer.Option("--access-log", metavar="FILE", help="Append the log to FILE, not to stderr.")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option("--certificate", metavar="FILE", help="Certificate for TLS, in PEM.")
    ] = None,
    key: Annotated[Path | None, typer.Option("--key", metavar="FILE", help="Private key for TLS, in PEM.")] = None,
    connections: Annotated[
        int, typer.Option("--connections", metavar="N", help="Most open connections of one process.")
    ] = 4096,
    idle_seconds: Annotated[
        int, typer.Option("--idle-seconds", metavar="N", help="How long a connection may be idle.")
    ] = 60,
    head_seconds: Annotated[
        int, typer.Option("--head-seconds", metavar="N", help="How long the head of a request may take.")
    ] = 10,
    request_seconds: Annotated[
        int, typer.Option("--request-seconds", metavar="N", help="How long a whole request may take to arrive.")
    ] = 60,
    stall_seconds: Annotated[
        int, typer.Option("--stall-seconds", metavar="N", help="How long a client may read nothing.")
    ] = 60,
    stop_seconds: Annotated[
        int, typer.Option("--stop-seconds", metavar="N", help="How long responses may go on after SIGTERM.")
    ] = 30,
) -> int:
    """Serve the files of the catalog over HTTP, for reading only.

    Example: cafcat serve --port 8320
    """
    try:
        from cafcat.serve.options import ServeOptions
        from cafcat.serve.processes import Server
    except ImportError as error:
        raise NotInstalled(f"serving files needs {error.name}", hint="pip install 'cafcat[serve]'") from error

    options = ServeOptions(
        host=host,
        port=port,
        workers=workers,
        redirect=redirect,
        access_log=access_log,
        certificate=certificate,
        key=key,
        connections=connections,
        idle_seconds=idle_seconds,
        head_seconds=head_seconds,
        request_seconds=request_seconds,
        stall_seconds=stall_seconds,
        stop_seconds=stop_seconds,
    )
    server = Server(call.settings(), options)

    def announce() -> None:
        if call.json:
            call.output.document({"urls": server.urls})
        elif not call.quiet:
            for url in server.urls.values():
                call.output.notice(f"serving files at {url}")
        call.output.flush()

    server.run(announce)
    return 0


def register(app: typer.Typer) -> None:
    """Add `cafcat serve` to the commands of the program."""
    verb(app, "serve", serve)
