"""Folders of the local file system as a kind of store."""

import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from cafcat.errors import InvalidInput
from cafcat.stores.base import Store
from cafcat.stores.kind import ArchiveObject, ObjectAddress, ObjectInFolder, StoreContext, StoreKind

__all__ = ["LOCAL"]

_FILE_URL: Final = re.compile(r"file:(?=/)", re.IGNORECASE)
_FOLDER_URL: Final = re.compile(r"file:(?://(?:localhost)?(?=/)|(?!//))(/.*)", re.DOTALL | re.IGNORECASE)


class _LocalKind(StoreKind):
    """The kind of store whose objects are files in a folder, named by its path or file:// URL (RFC 8089)."""

    def open(self, url: str, context: StoreContext) -> Store:
        """Return the store in a folder, which may not exist.

        Raises:
            InvalidInput: The URL is not that of a folder of this machine.
        """
        from cafcat.stores.local.store import LocalStore

        folder = _path_of(url)
        private = context.private_folder
        is_private = private is not None and os.path.abspath(folder) == os.path.abspath(private)
        return LocalStore(Path(folder), is_private=is_private)

    def normal_url(self, text: str) -> str:
        """Return the URL of a folder as file:///FOLDER: "file:///srv" for "file:/srv" and "FILE://localhost/srv".

        `same_store_key` recognizes other spellings of the same folder.

        Raises:
            InvalidInput: The text is not the URL of a folder of this machine, as " file:///srv" or "file://host/a".
        """
        match = _FOLDER_URL.fullmatch(text)
        if match is None:
            raise InvalidInput(
                "is not the URL of a folder of this machine", hint="write file:///FOLDER, or the path"
            )
        return f"file://{match[1]}"

    def same_store_key(self, url: str) -> str:
        """Return the path in a file:// URL, percent-decoded and without a slash at its end.

        It is the same for "file:///srv/chunks" and "file://localhost/srv/chunks/". Links are not followed. Any
        other text is returned unchanged.
        """
        match = _FOLDER_URL.fullmatch(url)
        return os.path.normpath(unquote(match[1])) if match else url

    def address(self, url: str) -> ObjectAddress:
        """Split the path or file:// URL of a file into the URL of its folder and its name, which is the key.

        For an existing folder, the address has the URL of this folder, and the key "".

        Raises:
            InvalidInput: The URL is not valid.
        """
        path = os.path.abspath(_path_of(url))
        if os.path.isdir(path):
            return ObjectAddress(path, Path(path).as_uri(), "")
        return ObjectAddress(path, Path(os.path.dirname(path)).as_uri(), os.path.basename(path))

    def open_object(self, address: ObjectAddress, context: StoreContext) -> ObjectInFolder:
        """Open a file of this machine by its path, to read it in parts.

        Names that are not allowed as keys of stored objects are allowed here.

        Raises:
            NotFound: There is no such file.
            InvalidInput: This is not a regular file, or not a path.
            StoreFailed: The file cannot be opened.
        """
        from cafcat.stores.local.files import LocalFile

        file = LocalFile(address.name)
        return ArchiveObject(file, file.size_bytes, self, address, context)


def _path_of(url_or_path: str) -> str:
    """Return the path in a file:// URL, percent-decoded. A plain path is returned unchanged.

    Raises:
        InvalidInput: The URL has another host, a query or a fragment, or its path has a NUL byte.
    """
    if not _FILE_URL.match(url_or_path):
        return url_or_path
    parts = urlsplit(url_or_path)
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        hint = "a file URL is file:///absolute/path, with ? and # as %3F and %23"
        raise InvalidInput(f"not the URL of a file or folder of this machine: {url_or_path}", hint=hint)
    path = unquote_to_bytes(parts.path)
    if b"\0" in path:
        raise InvalidInput(f"the path contains a NUL byte: {url_or_path}")
    return os.fsdecode(path)


LOCAL: Final = _LocalKind()
