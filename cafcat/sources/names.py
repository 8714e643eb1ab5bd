"""Names of files in the catalog: as GNU tar names members, from what was typed.

Source of the rules: `safer_name_suffix` of GNU paxutils (tar 1.34). One deviation: "." components and doubled
slashes of the typed part are dropped, so that `ingest .` and `ingest a` name the same file alike.
"""

import os
import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Final

from cafcat.errors import InvalidInput
from cafcat.model import MAX_PATH_BYTES

__all__ = [
    "check_name",
    "folder_prefix",
    "member_name",
    "names_in",
    "prefixed",
    "printable",
    "strip_warning",
    "url_without_user",
    "warn_once",
]

_READ_BYTES = 1 << 16
_AUTHORITY: Final = re.compile(r"(?:.*@)?([^@:\[\]]*|\[[^@\[\]]*\])(:[0-9]*)?", re.DOTALL)
"""User and password, host, and port of a URL (RFC 3986, 3.2)."""
_MAX_NAME_BYTES = 1 << 16
"""Far above what any system opens (4,096): a longer one means that this is no list of names."""


def member_name(typed: str) -> tuple[str, str]:
    """The name of a typed path, and the leading part that was removed from it ("" if none).

    Removed are leading slashes, and everything up to the last ".." component. The name of a folder has no
    slash at its end; it is "" where nothing is left, as of "." and "/".
    """
    parts = typed.split("/")
    kept = parts
    removed = "/" if typed.startswith("/") else ""
    if ".." in parts:
        last = len(parts) - 1 - parts[::-1].index("..")
        removed = "/".join(parts[: last + 1]) + "/"
        kept = parts[last + 1 :]
    return "/".join(part for part in kept if part not in ("", ".")), removed


def prefixed(prefix: str, name: str) -> str:
    """The name in the folder of the catalog that --prefix means: ("p", "a") -> "p/a"."""
    return "/".join(filter(None, (member_name(prefix)[0], name)))


def folder_prefix(name: str) -> str:
    """What is put before the names of the files in a folder: "a" -> "a/", "" -> ""."""
    return f"{name}/" if name else ""


def strip_warning(removed: str) -> str:
    """What tar says when it removes the beginning of a name."""
    return f"Removing leading `{printable(removed)}' from member names"


def warn_once(warn: Callable[[str], None]) -> Callable[[str], None]:
    """Passes each message on the first time only: give the result to all sources of one ingest."""
    said: set[str] = set()

    def once(message: str) -> None:
        if message not in said:
            said.add(message)
            warn(message)

    return once


def names_in(read: Callable[[int], bytes], of: str, *, null_separated: bool) -> Iterator[str]:
    """The names in a list, one a line, or each ended by NUL. `read` gives so many of its bytes at most; `of`: its
    own name. Raises InvalidInput for a name of more than 65,536 bytes, and what `read` raises."""
    separator = b"\0" if null_separated else b"\n"
    rest = b""
    while block := read(_READ_BYTES):
        *names, rest = (rest + block).split(separator)
        yield from map(os.fsdecode, filter(None, names))
        if len(rest) > _MAX_NAME_BYTES:
            hint = "names are separated by newlines, or by NUL bytes with -0"
            raise InvalidInput(f"{of}: a name is longer than {_MAX_NAME_BYTES:,} bytes", hint=hint)
    if rest:
        yield os.fsdecode(rest)


def check_name(path: str) -> str | None:
    """Why the catalog cannot take this name, or None if it can: it is text of Postgres (UTF-8, no NUL) and
    must fit a b-tree page."""
    if path.isascii():
        size_bytes = len(path)
    else:
        try:
            size_bytes = len(path.encode())
        except UnicodeEncodeError:
            return "the name is not valid UTF-8"
    if not path:
        return "the name is empty"
    if size_bytes > MAX_PATH_BYTES:
        return f"the name is longer than {MAX_PATH_BYTES:,} bytes ({size_bytes:,})"
    return "the name contains a NUL byte" if "\0" in path else None


def printable(path: str) -> str:
    r"""The path for messages, in one line and valid UTF-8: undecodable bytes become `\xff`, control and
    invisible characters `\n`, `\x1b`, `\u202e`."""
    return path if path.isprintable() else "".join(map(_escaped, path))


def url_without_user(url: str) -> str:
    """Return a URL for messages: printable, without user and password, or "SCHEME://..." if it cannot be parsed."""
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    match = _AUTHORITY.fullmatch(authority)
    if match is None:  # nobody can say where a password ends
        return f"{printable(scheme)}://..."
    return printable(f"{scheme}://{match[1]}{match[2] or ''}{slash}{path}")


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # how os.fsdecode carries a byte that is not UTF-8 (PEP 383)
        return f"\\x{code - 0xDC00:02x}"
    if character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    if character in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[character]
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
