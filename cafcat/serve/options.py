"""The options of `cafcat serve`."""

from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated

from cafcat.errors import InvalidInput
from cafcat.serve.s3.options import S3Options
from cafcat.support.parameters import Flag, OptionGroup, Unless

__all__ = ["ServeOptions", "network_of"]


def network_of(address: str) -> IPv4Network | IPv6Network:
    """Return the network that a user names as a trusted proxy, such as "127.0.0.1" or "10.0.0.0/8".

    Raises:
        InvalidInput: The text is neither an address nor a network.
    """
    try:
        return ip_network(address)
    except ValueError as error:
        hint = "give an address such as 127.0.0.1, or a network such as 10.0.0.0/8"
        raise InvalidInput(f"a trusted proxy is not an address: {error}", hint=hint) from error


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How files are served, and which limits clients have.

    Attributes:
        host: Address to listen on.
        port: Port of the HTTP side; 0 for a free one.
        http: False to leave the HTTP side out.
        console: False to leave the console out.
        files: False to serve files only to visitors of the console, who have to log in.
        user_header: Header with the name of a user whom a trusted proxy has checked; None to trust no header.
        trusted_proxies: Addresses or networks of the proxies that set this header.
        s3_port: Port of the S3 protocol; 0 for a free one, None to leave it out.
        s3: How the S3 protocol is answered.
        workers: Number of processes.
        redirect: True to redirect requests with `?redirect` to a signed URL of the store.
        redirect_seconds: How long such a URL is valid.
        access_log: File to which the log is appended; None for stderr.
        certificate: PEM file with the certificate for TLS; None for no TLS.
        key: PEM file with the private key; None if the file of the certificate has it.
        connections: Most open connections of one process.
        idle_seconds: How long a connection without a request stays open.
        head_seconds: How long a client may take to send the head of a request.
        request_seconds: How long a client may take to send a whole request.
        stall_seconds: How long a client may take to read the next 48 KiB of a response.
        stop_seconds: How long responses may go on after SIGTERM.
        batches: Most batches that one process reads at the same time. Others wait.
    """

    host: Annotated[str, Flag("--host", "Address to listen on.", "HOST")] = "127.0.0.1"
    port: Annotated[int, Flag("--port", "Port for HTTP; 0 for a free one.", "PORT")] = 8320
    http: Annotated[bool, Unless("--no-http", "Serve the S3 protocol only.")] = True
    console: Annotated[bool, Unless("--no-console", "Leave the console out.")] = True
    files: Annotated[bool, Unless("--no-files", "Serve files over HTTP only to visitors of the console.")] = True
    user_header: Annotated[
        str | None, Flag("--user-header", "Header with the user whom a proxy has checked.", "NAME")
    ] = None
    trusted_proxies: Annotated[
        tuple[str, ...], Flag("--trusted-proxy", "Address of a proxy to trust. Repeatable.", "ADDRESS")
    ] = ()
    s3_port: Annotated[int | None, Flag("--s3-port", "Also serve the S3 protocol; 0 for a free port.", "PORT")] = (
        None
    )
    s3: Annotated[S3Options, OptionGroup()] = field(default_factory=S3Options)
    workers: Annotated[int, Flag("--workers", "Number of processes.", "N")] = 1
    redirect: Annotated[bool, Flag("--redirect", "Redirect requests with ?redirect to signed URLs.")] = False
    redirect_seconds: int = 300
    access_log: Annotated[Path | None, Flag("--access-log", "Append the log to FILE, not to stderr.", "FILE")] = (
        None
    )
    certificate: Annotated[Path | None, Flag("--certificate", "Certificate for TLS, in PEM.", "FILE")] = None
    key: Annotated[Path | None, Flag("--key", "Private key for TLS, in PEM.", "FILE")] = None
    connections: Annotated[int, Flag("--connections", "Most open connections of one process.", "N")] = 4096
    idle_seconds: Annotated[int, Flag("--idle-seconds", "How long a connection may be idle.", "N")] = 60
    head_seconds: Annotated[int, Flag("--head-seconds", "How long the head of a request may take.", "N")] = 10
    request_seconds: Annotated[
        int, Flag("--request-seconds", "How long a whole request may take to arrive.", "N")
    ] = 60
    stall_seconds: Annotated[int, Flag("--stall-seconds", "How long a client may read nothing.", "N")] = 60
    stop_seconds: Annotated[int, Flag("--stop-seconds", "How long responses may go on after SIGTERM.", "N")] = 30
    batches: int = 4

    def check(self) -> None:
        """Check the ranges of all numbers, and the options of the S3 protocol.

        Raises:
            InvalidInput: A number is out of its range, both ports are the same, nothing is to be served, an option
                of the S3 protocol is not valid or given without its port, a key is given without a certificate, or
                a header of users without trusted proxies.
        """
        if not self.http and self.s3_port is None:
            raise InvalidInput("nothing is to be served", hint="give --s3-port, or leave --no-http out")
        if self.http and self.port and self.port == self.s3_port:
            raise InvalidInput(f"--port and --s3-port are both {self.port}", hint="choose another --s3-port")
        # The console has access keys and public folders, too.
        plain = S3Options()
        of_s3 = replace(self.s3, public=plain.public, key_seconds=plain.key_seconds)
        if self.s3_port is None and of_s3 != plain:
            raise InvalidInput("an option of the S3 protocol is given without its port", hint="add --s3-port 8333")
        self.s3.check()
        self._check_http()
        ranges = {
            "port": (0, 65_535),
            "s3_port": (0, 65_535),
            "workers": (1, 256),
            "connections": (1, 1_000_000),
            "idle_seconds": (1, 86_400),
            "head_seconds": (1, 86_400),
            "request_seconds": (1, 86_400),
            "stall_seconds": (1, 86_400),
            "stop_seconds": (0, 86_400),
        }
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise InvalidInput(f"{name} must be from {low:,} to {high:,}, not {value}")
        if self.key is not None and self.certificate is None:
            raise InvalidInput("a private key needs a certificate", hint="use --certificate, too")

    def _check_http(self) -> None:
        """Check the options of the HTTP side that belong together."""
        if self.http and not self.files and not self.console:
            raise InvalidInput("the HTTP side would serve nothing", hint="leave out --no-files or --no-console")
        if self.user_header is not None and not self.trusted_proxies:
            hint = "name the address of the proxy with --trusted-proxy; any other client could send the header"
            raise InvalidInput("a header with users is given without the proxy that sets it", hint=hint)
        for address in self.trusted_proxies:
            network_of(address)
