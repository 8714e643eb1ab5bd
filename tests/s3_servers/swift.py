"""OpenStack Swift with its S3 API."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.s3_servers import swift_process
from tests.s3_servers.base import PROJECT, Command, ServerKind


class Swift(ServerKind):
    name = "swift"
    title = "OpenStack Swift"
    packages = ("swift>=2.35",)
    lacks = frozenset({"crc64"})
    needs_attributes = True
    access_key = swift_process.ACCESS_KEY
    secret_key = swift_process.SECRET_KEY

    def check(self) -> None:
        self.python_with("swift")

    def version(self) -> str:
        code = "from importlib.metadata import version; print(version('swift'))"
        command = [self.python_with("swift"), "-c", code]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def prepare(self, folder: Path, ports: Sequence[int]) -> Sequence[Command]:
        arguments = [self.python_with("swift"), "-m", "tests.s3_servers.swift_process", str(folder), str(ports[0])]
        return [Command(arguments, {"PYTHONPATH": str(PROJECT)})]
