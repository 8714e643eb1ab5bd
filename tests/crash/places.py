"""Stores that can be put back into an earlier state, once the requests of dead clients have had their effect."""

import os
import shutil
import time
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from tests.worlds import places
from tests.worlds.places import PREFIX
from tests.worlds.servers.s3_server import S3Server

__all__ = ["Bucket", "Folder", "Place"]

_IDLE_SECONDS = 20
_CLOSE_WAIT = "08"


class Place(places.Place, Protocol):
    """A store that can be put back into an earlier state.

    `put` writes the given objects and uploads, and removes all others. `settle` waits until the requests of dead
    clients have had their effect.
    """

    def put(self, objects: dict[str, bytes], uploads: list[str]) -> None: ...

    def settle(self) -> None: ...


class Folder(places.Folder):
    def put(self, objects: dict[str, bytes], uploads: list[str]) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        for key, data in objects.items():
            self.write(key, data)
        for key in uploads:
            self.begin_upload(key)

    def settle(self) -> None:
        """Do nothing: the kernel has completed all calls."""


class Bucket(places.Bucket):
    def __init__(self, server: S3Server, bucket: str) -> None:
        super().__init__(server, bucket)
        self._port = urlsplit(server.endpoint_url).port

    def put(self, objects: dict[str, bytes], uploads: list[str]) -> None:
        for key, upload_id in self._uploads():
            self.client.abort_multipart_upload(Bucket=self.bucket, Key=PREFIX + key, UploadId=upload_id)
        tags = self._tags()
        for key in tags.keys() - objects.keys():
            self.client.delete_object(Bucket=self.bucket, Key=PREFIX + key)
        for key, data in objects.items():
            if key not in tags or self._read(key, tags[key]) != data:
                self.write(key, data)
        for key in uploads:
            self.begin_upload(key)

    def write(self, key: str, data: bytes) -> None:
        """Write an object in one part, as cafcat does, so that it has the same entity tag."""
        upload_id = self._begin(key)
        part = {"PartNumber": 1, "ETag": self._send(key, upload_id, data)}
        where = {"Bucket": self.bucket, "Key": PREFIX + key, "UploadId": upload_id}
        self.client.complete_multipart_upload(**where, MultipartUpload={"Parts": [part]})  # type: ignore[arg-type]

    def settle(self) -> None:
        """Wait until the server has finished the requests of dead clients and closed their connections."""
        deadline = time.monotonic() + _IDLE_SECONDS
        while self._half_closed():
            assert time.monotonic() < deadline, "the S3 server does not come to rest"
            time.sleep(0.005)

    def _half_closed(self) -> bool:
        """Return True if the server has a connection whose client has closed it (proc_net_tcp(5))."""
        if not os.path.exists("/proc/net/tcp"):
            time.sleep(0.2)
            return False
        ours = f":{self._port:04X}"
        rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
        return any(row[1].endswith(ours) and row[3] == _CLOSE_WAIT for row in rows)
