"""A store that tests read and write without cafcat: a folder, or a bucket reached with boto3."""

from pathlib import Path
from typing import Protocol

import pytest

from tests.worlds.servers.s3_server import S3Server

__all__ = ["FOLDER_OR_SLOW_BUCKET", "PREFIX", "Bucket", "Folder", "Place"]

PREFIX = "pre/fix/"
"""Begins all keys of a store in a bucket. The bucket may have other keys, too."""

FOLDER_OR_SLOW_BUCKET = ["folder", pytest.param("bucket", marks=pytest.mark.slow)]
"""Parameters of tests that send so many requests to a store that they take long on S3."""


class Place(Protocol):
    """A store, as tests read and write it.

    `everything` returns the objects, and the unfinished uploads with ".partial" behind their keys.
    """

    url: str

    def everything(self) -> dict[str, bytes]: ...

    def objects(self) -> dict[str, bytes]: ...

    def uploads(self) -> list[str]: ...

    def write(self, key: str, data: bytes) -> None: ...

    def begin_upload(self, key: str) -> None: ...


class Folder:
    """A store in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = folder.as_uri()

    def everything(self) -> dict[str, bytes]:
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in found}

    def objects(self) -> dict[str, bytes]:
        return {name: data for name, data in self.everything().items() if not name.endswith(".partial")}

    def uploads(self) -> list[str]:
        return [name.removesuffix(".partial") for name in self.everything() if name.endswith(".partial")]

    def write(self, key: str, data: bytes) -> None:
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def begin_upload(self, key: str) -> None:
        self.write(f"{key}.partial", b"half")


class Bucket:
    """A store in a bucket."""

    def __init__(self, server: S3Server, bucket: str) -> None:
        self.client = server.client(max_attempts=5)
        self.bucket = bucket
        self.url = f"s3://{bucket}/{PREFIX}".rstrip("/")
        self._known: dict[tuple[str, str], bytes] = {}

    def everything(self) -> dict[str, bytes]:
        """Return all objects and unfinished uploads. The content of uploads is empty, because S3 cannot read it."""
        return {f"{key}.partial": b"" for key in self.uploads()} | self.objects()

    def objects(self) -> dict[str, bytes]:
        return {key: self._read(key, etag) for key, etag in self._tags().items()}

    def uploads(self) -> list[str]:
        return [key for key, _ in self._uploads()]

    def write(self, key: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=PREFIX + key, Body=data)

    def begin_upload(self, key: str) -> None:
        self._send(key, self._begin(key), b"half")

    def _tags(self) -> dict[str, str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=PREFIX)
        found = (item for page in pages for item in page.get("Contents", []))
        return {item["Key"].removeprefix(PREFIX): item["ETag"] for item in found}

    def _read(self, key: str, etag: str) -> bytes:
        """Return the bytes of an object. They are cached by entity tag, so that an object is downloaded once."""
        if (key, etag) not in self._known:
            self._known[key, etag] = self.client.get_object(Bucket=self.bucket, Key=PREFIX + key)["Body"].read()
        return self._known[key, etag]

    def _uploads(self) -> list[tuple[str, str]]:
        pages = self.client.get_paginator("list_multipart_uploads").paginate(Bucket=self.bucket)
        found = (item for page in pages for item in page.get("Uploads", []))
        return [(upload["Key"].removeprefix(PREFIX), upload["UploadId"]) for upload in found]

    def _begin(self, key: str) -> str:
        options = {"ContentType": "application/octet-stream"}
        return self.client.create_multipart_upload(Bucket=self.bucket, Key=PREFIX + key, **options)["UploadId"]  # type: ignore[arg-type]

    def _send(self, key: str, upload_id: str, data: bytes) -> str:
        where = {"Bucket": self.bucket, "Key": PREFIX + key, "UploadId": upload_id}
        return self.client.upload_part(**where, PartNumber=1, Body=data)["ETag"]  # type: ignore[arg-type]
