"""Writes one object into a container of Azure Blob Storage as blocks, several of which are sent at the same time.

The server checks the MD5 of each block. One request makes the blob of the blocks, unless its key is taken.
The id of the upload becomes metadata of the blob, which shows whether an upload with a lost answer has succeeded.
"""

import base64
import hashlib
from mmap import mmap
from uuid import uuid4

from cafcat.errors import AccessDenied, CafcatError, Conflict, NotFound, StoreFailed
from cafcat.remote.answers import unquoted
from cafcat.remote.clouds.azure import UPLOAD_HEADER, AzureContainer
from cafcat.stores.parted import PartedUpload
from cafcat.stores.s3.parts import PartPlan

__all__ = ["AzureUpload", "discard_blocks"]


class AzureUpload(PartedUpload[tuple[int, str]]):
    """One object that is being written into a container of Azure Blob Storage."""

    def __init__(self, container: AzureContainer, key: str, plan: PartPlan, *, rewrites_head: bool = False) -> None:
        """Prepare the upload of a new object. This sends no request.

        Args:
            container: The container.
            key: Key in the container (not in the store).
            plan: Size of the blocks, and how many of them are sent at the same time.
            rewrites_head: True to send the first block last, after `rewrite_head`.
        """
        super().__init__(container.name_of(key), plan, rewrites_head=rewrites_head)
        self._container = container
        self._key = key
        self._upload_id = uuid4().hex

    @property
    def upload_id(self) -> str | None:
        """None: the key is enough to discard the upload."""
        return None

    def _put_part(self, number: int, buffer: mmap, size_bytes: int, checksum: int) -> tuple[int, str]:
        """Send a block, and return its number and id. The id of an empty block, which is not sent, is ""."""
        del checksum
        block_id = base64.b64encode(f"{self._upload_id}-{number:06}".encode()).decode()
        with memoryview(buffer) as view, view[:size_bytes] as data:
            md5 = hashlib.md5(data, usedforsecurity=False).digest()
            if size_bytes:
                self._container.put_block(self._key, block_id, data, md5)
        return number, block_id if size_bytes else ""

    def _finish(self, parts: list[tuple[int, str]]) -> str | None:
        try:
            answer = self._container.commit_blocks(
                self._key, [block_id for _, block_id in sorted(parts) if block_id], self._upload_id
            )
            return unquoted(answer.headers.get("etag"))
        except CafcatError as error:
            # The answer to an earlier attempt may be lost: the blob shows which upload made it.
            return self._found_after(error)

    def _found_after(self, error: CafcatError) -> str | None:
        if isinstance(error, AccessDenied):
            raise error
        try:
            found = self._container.headers(self._key)
        except NotFound:
            raise StoreFailed(error.message, hint="run the same command again") from error
        if found.get(UPLOAD_HEADER) != self._upload_id:
            raise Conflict(
                f"cannot write {self._name}: an object with this key exists", chunk=self._name
            ) from error
        return unquoted(found.get("etag"))

    def _as_failure(self, error: BaseException) -> CafcatError:
        failure = super()._as_failure(error)
        return StoreFailed(failure.message) if isinstance(failure, Conflict) else failure

    def _discard(self) -> None:
        discard_blocks(self._container, self._key)


def discard_blocks(container: AzureContainer, key: str) -> None:
    """Remove the blocks of all unfinished uploads of a key.

    Azure has no request for that. A new empty blob takes the place of the blocks, and is removed at once. If there
    is a blob with this key already, it stays, and so do its blocks, which Azure removes after a week.

    Raises:
        NotFound: There is no such container.
        AccessDenied, StoreFailed: The server refuses or fails.
    """
    if not container.has_blocks(key):
        return
    try:
        answer = container.commit_blocks(key, (), "discarded")
    except Conflict:
        return
    container.delete(key, unquoted(answer.headers.get("etag")))
