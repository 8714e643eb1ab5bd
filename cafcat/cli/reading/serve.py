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
    no_http: Annotated[bool, typer.Option("--no-http", help="Serve the S3 protocol only.")] = False,
    s3_port: Annotated[
        int | None, typer.Option("--s3-port", metavar="PORT", help="Also serve the S3 protocol; 0 for a free port.")
    ] = None,
    bucket: Annotated[
        str | None, typer.Option("--bucket", metavar="NAME", help="One S3 bucket with all paths as its keys.")
    ] = None,
    s3_domain: Annotated[
        str | None, typer.Option("--s3-domain", metavar="HOST", help="Host of S3 requests to BUCKET.HOST.")
    ] = None,
    s3_region: Annotated[
        str, typer.Option("--s3-region", metavar="NAME", help="Region that S3 clients sign.")
    ] = "us-east-1",
    public: Annotated[
        list[str] | None,
        typer.Option("--public", metavar="FOLDER", help="Folder that S3 clients read without a key. Repeatable."),
    ] = None,
    workers: Annotated[int, typer.Option("--workers", metavar="N", help="Number of processes.")] = 1,
    redirect: Annotated[
        bool, typer.Option("--redirect", help="Redirect requests with ?redirect to signed URLs.")
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
    """Serve the files of the catalog over HTTP, and over the S3 protocol, for reading only.

    Example: cafcat serve --s3-port 8333
    """
    try:
        from cafcat.serve.options import ServeOptions
        from cafcat.serve.processes import Server
        from cafcat.serve.s3.options import S3Options
    except ImportError as error:
        raise NotInstalled(f"serving files needs {error.name}", hint="pip install 'cafcat[serve]'") from error

    options = ServeOptions(
        host=host,
        port=None if no_http else port,
        s3_port=s3_port,
        s3=S3Options(bucket=bucket, domain=s3_domain, region=s3_region, public=tuple(public or ())),
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
            for door, url in server.urls.items():
                call.output.notice(f"serving files at {url}" + (" (S3)" if door == "s3" else ""))
        call.output.flush()

    server.run(announce)
    return 0


def register(app: typer.Typer) -> None:
    """Add `cafcat serve` to the commands of the program."""
    verb(app, "serve", serve)
