"""Options of the S3 server."""

from dataclasses import dataclass
from typing import Annotated, Final

from cafcat.errors import InvalidInput
from cafcat.operations.names import check_names
from cafcat.support.parameters import Flag
from cafcat.support.paths import folder_of, is_text

__all__ = ["S3Options"]

_KEY_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options:
    """Options of the S3 server.

    Attributes:
        bucket: Name of the one bucket, whose keys are all paths of the catalog. None: each top-level folder is a
            bucket.
        domain: Host name of the server for requests to `BUCKET.domain`, without a port; None for paths only.
        region: Region that clients have to sign.
        public: Folders that anybody can list and read without an access key, by the S3 protocol and in the console;
            "." for all files.
        key_seconds: How long an access key is remembered: how long a revoked key is still accepted.
    """

    bucket: Annotated[str | None, Flag("--bucket", "One S3 bucket with all paths as its keys.", "NAME")] = None
    domain: Annotated[str | None, Flag("--s3-domain", "Host of S3 requests to BUCKET.HOST.", "HOST")] = None
    region: Annotated[str, Flag("--s3-region", "Region that S3 clients sign.", "NAME")] = "us-east-1"
    public: Annotated[
        tuple[str, ...],
        Flag("--public", "Folder that anybody lists and reads without a key. Repeatable.", "FOLDER"),
    ] = ()
    key_seconds: float = _KEY_SECONDS

    def check(self) -> None:
        """Check the names.

        Raises:
            InvalidInput: A name is empty, or no path can have it; or `public` is a single string.
        """
        for name in check_names(self.public):
            if not name:
                raise InvalidInput("the name of a public folder is empty", hint="write . for all files")
            if not is_text(name):
                raise InvalidInput("no folder of the catalog can have this name", path=name)
        if self.bucket is not None and (not self.bucket or "/" in self.bucket or not is_text(self.bucket)):
            raise InvalidInput(f"no bucket can have the name {self.bucket!r}", hint="use letters, digits and -")
        if not self.region or self.domain == "":
            raise InvalidInput("the region and the domain must not be empty")

    def public_folders(self) -> list[str]:
        """Return the public folders, each with "/" at its end; "" for all files."""
        return [folder_of(name) for name in self.public]
