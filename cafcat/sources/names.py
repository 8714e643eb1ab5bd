"""Names of files in the catalog, made of typed paths by the rules by which GNU tar names members.

The rules are those of `safer_name_suffix` in GNU paxutils (tar 1.34), with one difference: "." parts, doubled
slashes, and slashes at the end of the typed path are dropped. So `ingest .` and `ingest a` both give the file a/b
the name "a/b".
"""

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Final

from cafcat.errors import InvalidInput
from cafcat.model import MAX_PATH_BYTES
from cafcat.progress import Progress

__all__ = [
    "LIST_BLOCK_BYTES",
    "WarnOnce",
    "check_name",
    "folder_prefix",
    "list_blocks",
    "member_name",
    "names_in",
    "prefixed",
    "printable",
    "shown_url",
    "strip_warning",
    "url_without_query",
    "url_without_user",
]

LIST_BLOCK_BYTES: Final = 1 << 16
"""How many bytes of a list of names (--files-from) are read at once."""
_AUTHORITY: Final = re.compile(r"(?:.*@)?([^@:\[\]]*|\[[^@\[\]]*\])(:[0-9]*)?", re.DOTALL)
"""User and password, host, and port of a URL (RFC 3986, 3.2)."""
_QUERY: Final = re.compile(r"[?#].*", re.DOTALL)
_MAX_NAME_BYTES = 1 << 16
"""Longest name in a list, in bytes. Linux opens no path of more than 4,096 bytes, so a longer name means that the
file is not a list of names."""


def member_name(typed: str) -> tuple[str, str]:
    """Return the name in the catalog for a typed path, and the leading part of the path that was removed.

    Leading slashes, and everything up to the last ".." part, are removed. The name of a folder has no slash at its
    end. The name is "" if nothing is left, as for "." and "/".

    Args:
        typed: The path as it was typed, or the name of a member of a tar archive.

    Returns:
        The name, and the removed part ("" if there is none).
    """
    parts = typed.split("/")
    rest = parts
    removed = "/" if typed.startswith("/") else ""
    if ".." in parts:
        last = len(parts) - 1 - parts[::-1].index("..")
        removed = "/".join(parts[: last + 1]) + "/"
        rest = parts[last + 1 :]
    return "/".join(part for part in rest if part not in ("", ".")), removed


def prefixed(prefix: str, name: str) -> str:
    """Return a name in the catalog with the folder that --prefix puts before it: ("p", "a") -> "p/a"."""
    return "/".join(filter(None, (member_name(prefix)[0], name)))


def folder_prefix(name: str) -> str:
    """Return the prefix of the names of all files in a folder: "a" -> "a/", "" -> ""."""
    return f"{name}/" if name else ""


def strip_warning(removed: str) -> str:
    """Return the warning that tar prints when it removes the beginning of a name."""
    return f"Removing leading `{printable(removed)}' from member names"


class WarnOnce(Progress):
    """A Progress that passes each different warning on only once. All sources of one ingest share it."""

    def __init__(self, progress: Progress) -> None:
        """Begin with no warning passed on.

        Args:
            progress: Receives each different warning.
        """
        self._progress = progress
        self._seen: set[str] = set()

    def warn(self, message: str) -> None:
        """Pass a warning on, unless an equal warning was passed on before."""
        if message not in self._seen:
            self._seen.add(message)
            self._progress.warn(message)


def list_blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the bytes of a list of names as they arrive, at most 64 KiB at once.

    A block is the result of one system call, so that Ctrl-D ends a list that is typed at a terminal. Raises OSError
    if the list cannot be read.
    """
    read = getattr(stream, "read1", stream.read)
    while block := read(LIST_BLOCK_BYTES):
        yield block


def names_in(blocks: Iterable[bytes], of: str, *, null_separated: bool) -> Iterator[str]:
    """Yield the names in a list: one per line, or each ended by NUL. Empty names are left out.

    Args:
        blocks: The bytes of the list.
        of: Name of the list, for messages.
        null_separated: True if NUL bytes end the names.

    Raises:
        InvalidInput: More than 65,536 bytes of a name were read without its end. Errors of the iteration of
            `blocks` are raised unchanged.
    """
    separator = b"\0" if null_separated else b"\n"
    rest = b""
    for block in blocks:
        *names, rest = (rest + block).split(separator)
        yield from map(os.fsdecode, filter(None, names))
        if len(rest) > _MAX_NAME_BYTES:
            hint = "names in a list end with newlines, or with NUL bytes if -0 is given"
            raise InvalidInput(f"{of}: a name is longer than {_MAX_NAME_BYTES:,} bytes", hint=hint)
    if rest:
        yield os.fsdecode(rest)


def check_name(path: str) -> str | None:
    """Return why the catalog cannot store a name, for a message; None if it can.

    A name must not be empty. It must be valid UTF-8 without NUL, as every text in Postgres, and have at most 2,048
    bytes, so that it fits into a page of a b-tree.
    """
    if path.isascii():
        size_bytes = len(path)
    else:
        try:
            size_bytes = len(path.encode())
        except UnicodeEncodeError:
            return "the name is not valid UTF-8: rename the file (convmv renames whole folders)"
    if not path:
        return "the name is empty"
    if size_bytes > MAX_PATH_BYTES:
        return f"the name is longer than {MAX_PATH_BYTES:,} bytes ({size_bytes:,})"
    return "the name contains a NUL byte" if "\0" in path else None


def printable(path: str) -> str:
    r"""Return a path for messages: one line of valid UTF-8.

    Undecodable bytes become escapes such as `\xff`, control and invisible characters escapes such as `\u202e`.
    """
    return path if path.isprintable() else "".join(map(_escaped, path))


def shown_url(url: str) -> str:
    """Return a URL for messages, without user, password, query and fragment, which may be secrets."""
    return url_without_user(url_without_query(url))


def url_without_query(url: str) -> str:
    """Return a URL without its query and fragment."""
    return _QUERY.sub("", url)


def url_without_user(url: str) -> str:
    """Return a URL for messages: printable, without user and password. "SCHEME://..." if it cannot be parsed."""
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    match = _AUTHORITY.fullmatch(authority)
    if match is None:  # the end of a password cannot be found
        return f"{printable(scheme)}://..."
    return printable(f"{scheme}://{match[1]}{match[2] or ''}{slash}{path}")


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # os.fsdecode stores a byte that is not UTF-8 this way (PEP 383)
        return f"\\x{code - 0xDC00:02x}"
    if character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    if character in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[character]
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
