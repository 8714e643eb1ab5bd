"""Translates shell patterns to regular expressions of PostgreSQL, so that the database does the matching."""

import re
from collections.abc import Sequence

__all__ = ["regex_of_glob", "regex_of_path_glob"]

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
    return _anchored("(^|/)", pattern, ())


def regex_of_path_glob(pattern: str) -> str:
    """Return a regular expression that matches the whole paths that match a shell pattern.

    Args:
        pattern: The shell pattern, as for `regex_of_glob`. "**" also matches slashes: "a/**/*.jpg" matches the
            files below the folder "a" at any depth, "a/*.jpg" only those in it.
    """
    return _anchored("^", pattern, _ACROSS_FOLDERS)


_ACROSS_FOLDERS = (("**/", "(.*/)?"), ("**", ".*"))
"""Wildcards that match slashes, and their regular expressions. The first one that fits counts."""


def _anchored(start: str, pattern: str, across: Sequence[tuple[str, str]]) -> str:
    parts = []
    position = 0
    while position < len(pattern):
        crossing = next((pair for pair in across if pattern.startswith(pair[0], position)), None)
        if crossing is None:
            text, position = _next(pattern, position)
        else:
            text, position = crossing[1], position + len(crossing[0])
        parts.append(text)
    # (?s) is the default. It is written out because it lets ^, $ and [^/] treat a newline as any other character.
    return f"(?s){start}{''.join(parts)}$"


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
