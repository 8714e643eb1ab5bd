"""The command `cafcat serve`: its flags, and the lines that it prints at its start."""

from contextlib import closing, suppress
from threading import Thread

import typer

from cafcat.cli.call import Call, verb
from cafcat.cli.reading.missing_names import warn_of_empty_folders
from cafcat.errors import CafcatError, NotInstalled
from cafcat.serve.options import ServeOptions

__all__ = ["register"]


def serve(call: Call, options: ServeOptions) -> int:
    """Serve the files of the catalog over HTTP, and over the S3 protocol, for reading only.

    Example: cafcat serve --s3-port 8333
    """
    try:
        from cafcat.serve.processes import Server
    except ImportError as error:
        raise NotInstalled(f"serving files needs {error.name}", hint=NotInstalled.remedy("serve")) from error

    server = Server(call.settings(), options)

    def announce() -> None:
        if call.json:
            call.output.document({"urls": server.urls})
        elif not call.quiet:
            for door, url in server.urls.items():
                call.output.notice(f"serving files at {url}" + (" (S3)" if door == "s3" else ""))
        call.output.flush()
        if options.s3.public:
            # A database that does not answer must delay neither the server nor its end.
            Thread(target=_warn_of_public_folders, args=(call, options), daemon=True).start()

    server.run(announce)
    return 0


def _warn_of_public_folders(call: Call, options: ServeOptions) -> None:
    """Warn of public folders without a file, unless the catalog cannot be read or does not exist."""
    database = call.database()
    if not database.exists:
        return
    with suppress(CafcatError), closing(database.unchanged()) as catalog:
        warn_of_empty_folders(call, catalog, options.s3.public_folders())


def register(app: typer.Typer) -> None:
    """Add `cafcat serve` to the commands of the program."""
    panels = {
        "HTTP and console": ("http", "console", "files", "user_header", "trusted_proxies", "redirect"),
        "S3": ("s3_port", "bucket", "domain", "region", "public"),
        "TLS": ("certificate", "key"),
        "Limits": (
            "connections",
            "idle_seconds",
            "head_seconds",
            "request_seconds",
            "stall_seconds",
            "stop_seconds",
        ),
    }
    address = "--host ADDRESS and --port N are for HTTP, and --s3-port N for the S3 protocol"
    verb(app, "serve", serve, panels=panels, hints={"": address, "--addr": address})
