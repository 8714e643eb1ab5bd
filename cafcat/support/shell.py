"""Makes shell commands that users can run. Each command is one physical line, even if a name has a newline."""

import os
import shlex
from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["ShellName", "argument", "cat_line", "curl_line", "dd_line", "shell_name", "word"]

_UNESCAPED: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._")
_VARIABLE: Final = "cafcat_name"


class ShellName(NamedTuple):
    """A file name or URL, quoted for a command of a POSIX shell.

    Attributes:
        before: An assignment and "; ", to be put in front of the command; "" for a printable name.
        word: The shell word that stands for the name in the command.
    """

    before: str
    word: str


def shell_name(text: str) -> ShellName:
    r"""Return a name, quoted for a line that is pasted or piped into a POSIX shell.

    A newline inside quotes would end the line, and a shell that gets only the next line would run the rest of the
    name as code. Names with characters that are not printable therefore become octal escapes of printf(1),
    as in `cafcat_name=$(printf 'a\012b.')`. `$(...)` cuts newlines at the end, so a dot follows the name, and
    `${cafcat_name%.}` removes the dot.
    """
    if text.isprintable():
        return ShellName("", shlex.quote(text))
    octal = "".join(chr(byte) if byte in _UNESCAPED else f"\\{byte:03o}" for byte in os.fsencode(text))
    return ShellName(f"{_VARIABLE}=$(printf '{octal}.'); ", f'"${{{_VARIABLE}%.}}"')


def argument(name: str) -> str:
    """Return a name of the catalog as a message shows it in a command, such as `cafcat undelete NAME`.

    A leading dash would begin an option, so such a name gets "./" before it.
    """
    return word(f"./{name}" if name.startswith("-") else name)


def word(text: str) -> str:
    r"""Return a shell word that stands for a text in the command of a message.

    A text with characters that are not printable becomes a word of bash, ksh and zsh, as in `$'a\012b'`.
    """
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(map(_escaped, text)) + "'"


def _escaped(character: str) -> str:
    if character.isprintable():
        return f"\\{character}" if character in "'\\" else character
    return "".join(f"\\{byte:03o}" for byte in os.fsencode(character))


def cat_line(path: str) -> str:
    """Return the shell command that prints a file of the catalog: `cafcat cat`."""
    before, word = shell_name(path)
    return f"{before}cafcat cat -- {word}"


def dd_line(file: str, start_byte: int, end_byte: int) -> str:
    """Return the shell command that prints the bytes `[start_byte, end_byte)` of a local file: `dd` of GNU."""
    before, word = shell_name(file)
    return (
        f"{before}dd if={word} iflag=skip_bytes,count_bytes bs=1M"
        f" skip={start_byte} count={end_byte - start_byte} status=none"
    )


def curl_line(url: str, start_byte: int, end_byte: int, options: Sequence[str] = ()) -> str:
    """Return the shell command that prints the bytes `[start_byte, end_byte)` of an http(s) URL: `curl`.

    For an empty range the command is `true`, which prints nothing.

    Args:
        url: The URL, percent-encoded.
        start_byte: First byte.
        end_byte: One past the last byte.
        options: Further shell words for curl, quoted already.
    """
    if start_byte == end_byte:
        return "true"  # HTTP has no range of no bytes
    before, word = shell_name(url)
    words = ["curl -sSf", *options, f"-r {start_byte}-{end_byte - 1}", word]
    return before + " ".join(filter(None, words))
