"""Where objects are, seen beside cafcat's stores: a folder, or a bucket reached with boto3."""

import os
import shutil
import time
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from tests.s3_server import S3Server

__all__ = ["Bucket", "Folder", "Place"]

PREFIX = "pre/fix/"
_IDLE_SECONDS = 20
_CLOSE_WAIT = "08"


class Place(Protocol):
    """`put` makes it what `objects` said before; `settle` waits until requests of clients that are dead have had
    their effect."""

    url: str

    def objects(self) -> dict[str, bytes]: ...

    def uploads(self) -> list[str]: ...

    def put(self, objects: dict[str, bytes], uploads: list[str]) -> None: ...

    def overwrite(self, key: str, data: bytes) -> None: ...

    def settle(self) -> None: ...


class Folder:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = folder.as_uri()

    def objects(self) -> dict[str, bytes]:
        return {name: data for name, data in self._files().items() if not name.endswith(".partial")}

    def uploads(self) -> list[str]:
        return [name.removesuffix(".partial") for name in self._files() if name.endswith(".partial")]

    def put(self, objects: dict[str, bytes], uploads: list[str]) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        for key, data in [*objects.items(), *((f"{key}.partial", b"half") for key in uploads)]:
            self.overwrite(key, data)

    def overwrite(self, key: str, data: bytes) -> None:
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def settle(self) -> None:
        """The kernel has done all that it was asked."""

    def _files(self) -> dict[str, bytes]:
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in found}


class Bucket:
    def __init__(self, server: S3Server, bucket: str) -> None:
        self.client = server.client(max_attempts=5)
        self.bucket = bucket
        self.url = f"s3://{bucket}/{PREFIX}".rstrip("/")
        self._port = urlsplit(server.endpoint_url).port
        self._known: dict[tuple[str, str], bytes] = {}

    def objects(self) -> dict[str, bytes]:
        return {key: self._read(key, etag) for key, etag in self._tags().items()}

    def uploads(self) -> list[str]:
        return [key for key, _ in self._uploads()]

    def put(self, objects: dict[str, bytes], uploads: list[str]) -> None:
        for key, upload_id in self._uploads():
            self.client.abort_multipart_upload(Bucket=self.bucket, Key=PREFIX + key, UploadId=upload_id)
        tags = self._tags()
        for key in tags.keys() - objects.keys():
            self.client.delete_object(Bucket=self.bucket, Key=PREFIX + key)
        for key, data in objects.items():
            if key not in tags or self._read(key, tags[key]) != data:
                self.overwrite(key, data)
        for key in uploads:
            upload_id = self._begin(key)
            self._send(key, upload_id, b"half")

    def overwrite(self, key: str, data: bytes) -> None:
        """In one part, as cafcat wrote it: then it has the same entity tag."""
        upload_id = self._begin(key)
        part = {"PartNumber": 1, "ETag": self._send(key, upload_id, data)}
        where = {"Bucket": self.bucket, "Key": PREFIX + key, "UploadId": upload_id}
        self.client.complete_multipart_upload(**where, MultipartUpload={"Parts": [part]})  # type: ignore[arg-type]

    def settle(self) -> None:
        """A client's death closes its side of a connection; the server closes its own when it is done with it."""
        deadline = time.monotonic() + _IDLE_SECONDS
        while self._half_closed():
            assert time.monotonic() < deadline, "the S3 server does not come to rest"
            time.sleep(0.005)

    def _half_closed(self) -> bool:
        """Whether the server has a connection whose other end is gone (proc_net_tcp(5))."""
        if not os.path.exists("/proc/net/tcp"):
            time.sleep(0.2)
            return False
        ours = f":{self._port:04X}"
        rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
        return any(row[1].endswith(ours) and row[3] == _CLOSE_WAIT for row in rows)

    def _tags(self) -> dict[str, str]:
        found = self.client.list_objects_v2(Bucket=self.bucket, Prefix=PREFIX).get("Contents", [])
        return {item["Key"].removeprefix(PREFIX): item["ETag"] for item in found}

    def _read(self, key: str, etag: str) -> bytes:
        """Objects that were read before are known by their tag, which their bytes decide."""
        if (key, etag) not in self._known:
            self._known[key, etag] = self.client.get_object(Bucket=self.bucket, Key=PREFIX + key)["Body"].read()
        return self._known[key, etag]

    def _uploads(self) -> list[tuple[str, str]]:
        found = self.client.list_multipart_uploads(Bucket=self.bucket).get("Uploads", [])
        return [(upload["Key"].removeprefix(PREFIX), upload["UploadId"]) for upload in found]

    def _begin(self, key: str) -> str:
        options = {"ContentType": "application/octet-stream"}
        return self.client.create_multipart_upload(Bucket=self.bucket, Key=PREFIX + key, **options)["UploadId"]  # type: ignore[arg-type]

    def _send(self, key: str, upload_id: str, data: bytes) -> str:
        where = {"Bucket": self.bucket, "Key": PREFIX + key, "UploadId": upload_id}
        return self.client.upload_part(**where, PartNumber=1, Body=data)["ETag"]  # type: ignore[arg-type]
