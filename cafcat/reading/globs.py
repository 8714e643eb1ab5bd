"""Translates shell patterns to regular expressions of PostgreSQL, so that the database does the matching."""

import re
from typing import Final

__all__ = ["is_glob", "literal_prefix", "regex_of_glob", "regex_of_path_glob"]

_SPECIAL: Final = re.compile(r"[*?[\\]")

_BRACKET = re.compile(r"\[([!^]?)(\]?[^\]]*)\]")
_NOTHING = "(?!)"


def regex_of_glob(pattern: str) -> str:
    """Return a regular expression that matches the paths whose last part matches a shell pattern.

    Args:
        pattern: The shell pattern. "*" and "?" do not match "/"; "[abc]", "[a-z]" and "[!abc]" are as in sh; a
            backslash makes the next character plain.

    Returns:
        A regular expression as in the PostgreSQL documentation, 9.7.3.
    """
    parts = []
    position = 0
    while position < len(pattern):
        text, position = _next(pattern, position)
        parts.append(text)
    # (?s) is the default. It is written out because it lets ^, $ and [^/] treat a newline as any other character.
    return f"(?s)(^|/){''.join(parts)}$"


def is_glob(text: str) -> bool:
    """Return True if a text has a character with which a shell pattern matches several names: "*", "?" or "["."""
    return "*" in text or "?" in text or "[" in text


def literal_prefix(pattern: str) -> str:
    """Return the text with which each path begins that a shell pattern matches: "a/b*.jpg" -> "a/b"."""
    special = _SPECIAL.search(pattern)
    return pattern if special is None else pattern[: special.start()]


def regex_of_path_glob(pattern: str, *, below: bool = False) -> str:
    """Return a regular expression that matches the whole paths that a shell pattern matches.

    Args:
        pattern: The shell pattern, with the syntax of `regex_of_glob`. In addition, "**" as a whole part of the
            path stands for any number of folders, also none: "a/**/b" matches "a/b" and "a/x/y/b". At the end it
            stands for everything below: "a/**".
        below: True to match also all files below the folders that the pattern matches. With a "/" at its end, the
            pattern then matches only folders.

    Returns:
        A regular expression as in the PostgreSQL documentation, 9.7.3, without embedded options.
    """
    rest = ""
    if below:
        rest = "/.*" if pattern.endswith("/") else "(/.*)?"
        pattern = pattern.rstrip("/")
    parts = []
    position = 0
    while position < len(pattern):
        text, position = _next_of_path(pattern, position)
        parts.append(text)
    return f"^{''.join(parts)}{rest}$"


def _next_of_path(pattern: str, position: int) -> tuple[str, int]:
    if position == 0 or pattern[position - 1] == "/":
        if pattern.startswith("**/", position):
            return "(.*/)?", position + 3
        if pattern[position:] == "**":
            return ".+", position + 2
    return _next(pattern, position)


def _next(pattern: str, position: int) -> tuple[str, int]:
    character = pattern[position]
    if character == "*":
        return "[^/]*", position + 1
    if character == "?":
        return "[^/]", position + 1
    if character == "\\" and position + 1 < len(pattern):
        return _literal(pattern[position + 1]), position + 2
    if character == "[" and (bracket := _BRACKET.match(pattern, position)) and bracket[2]:
        return _class(bracket[1] != "", bracket[2]), bracket.end()
    return _literal(character), position + 1


def _literal(character: str) -> str:
    return character if character.isalnum() or character in "_/ " else f"\\{character}"


def _class(negated: bool, members: str) -> str:
    """Return the regular expression for a bracket of a shell pattern, such as "[a-z]".

    It matches one character, never a slash. A range from a later character to an earlier one matches nothing.

    Args:
        negated: True for "[!...]" or "[^...]".
        members: The text between the brackets, without the "!" or "^".
    """
    parts = []
    position = 0
    while position < len(members):
        if members[position + 1 : position + 2] == "-" and position + 2 < len(members):
            low, high = members[position], members[position + 2]
            if low <= high:
                parts.append(f"{_member(low)}-{_member(high)}")
            position += 3
        else:
            parts.append(_member(members[position]))
            position += 1
    if not parts:
        return "[^/]" if negated else _NOTHING
    return f"(?!/)[{'^' if negated else ''}{''.join(parts)}]"


def _member(character: str) -> str:
    # Inside brackets, a backslash makes any special character plain (PostgreSQL documentation, 9.7.3.2).
    return character if character.isalnum() or not character.isascii() else f"\\{character}"
