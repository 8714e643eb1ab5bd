"""Random damage to bytes, to text in JSON, and to the footer of a CAF archive.

All choices come from a `random.Random`, so that a case is reproduced from its numbers alone.
"""

import re
from collections.abc import Callable, Sequence
from random import Random

from cafcat.support.checksums import crc32c

__all__ = ["damaged_archive", "damaged_bytes", "damaged_journal", "damaged_json", "footed", "sealed"]

Mutation = Callable[[Random, bytes], bytes]

ODD_BYTES = [0x00, 0xFF, 0x7F, 0x80, *b'"\\{}[]:,-+.eE09 \n\t\x0b\x1fu']
EDGES = [0, 1, 2, 3, 4, 35, 1 << 16, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 5, (1 << 32) - 4, (1 << 32) - 1]
ODD_NUMBERS = [b"0", b"-0", b"-1", b"1", b"00", b"0.0", b"1.5", b"1e999", b"-1e999", b"1E-5", b"NaN", b"Infinity"]
ODD_NUMBERS += [b"-Infinity", b"+1", b"0x10", b"1_000", b"9" * 18, b"9" * 19, b"9" * 20, b"9" * 5000, b"", b"-"]
ODD_NUMBERS += [str(n + d).encode() for n in (1 << 31, 1 << 32, 1 << 53, 1 << 63, 1 << 64) for d in (-1, 0, 1)]
ODD_NUMBERS += [str(-(1 << 63) - d).encode() for d in (0, 1)]
ODD_VALUES = [b"null", b"true", b"false", b"[]", b"{}", b'""', b'"0"', b"[0]", b'{"a":0}', b"nul", b"'a'"]
ODD_STRINGS = [rb"\ud800", rb"\udc00", rb"\ude00\ud83d", rb"\ud83d\ude00", rb"\u0000", rb"\u0041", b"\0", b"\n"]
ODD_STRINGS += [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xef\xbb\xbf", rb"\x41", rb"\u12", b"\\", b"..", b"../up"]
ODD_STRINGS += [
    b"/abs",
    b"a//b",
    b"",
    b"start_byte",
    b"end_byte",
    b"files",
    b"format_version",
    b"1.0",
    b"2.0",
    b"path",
]
ODD_STRINGS += ["日本".encode(), b"x" * 2048, b"x" * 2049]

TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][-+0-9.eE]*|true|false|null|[{}\[\],:]')
MEMBER = re.compile(rb'"(?:[^"\\]|\\.)*"\s*:\s*(?:\{[^{}]*\}|"(?:[^"\\]|\\.)*"|[-+0-9.eE]+|true|false|null)\s*,?')
NEAR_BYTES = 600
"""Size of the window in which tokens are searched, in bytes: searching large texts would take too long."""


def damaged_bytes(random: Random, data: bytes, other: bytes) -> bytes:
    """Make one to four changes of bytes. Parts of `other` may be spliced in."""
    for _ in range(_few(random)):
        if random.random() < 0.1:
            data = _spliced(random, data, other)
        else:
            data = random.choice(BYTE_MUTATIONS)(random, data)
    return data


def damaged_json(random: Random, text: bytes) -> bytes:
    """Make one to four changes of a JSON document, or of several in lines."""
    for _ in range(_few(random)):
        mutations = LARGE_JSON_MUTATIONS if random.random() < 0.002 else JSON_MUTATIONS
        text = random.choice(mutations)(random, text)
    return text


def damaged_archive(random: Random, data: bytes, other: bytes) -> bytes:
    """Damage the index of a CAF archive and correct its footer; or damage the footer; or damage bytes anywhere."""
    chance = random.random()
    if chance < 0.5:
        files, index = _parts(data)
        return sealed(files, damaged_json(random, index))
    if chance < 0.6:
        files, index = _parts(data)
        return sealed(damaged_bytes(random, files, other), index)
    if chance < 0.7:
        files, index = _parts(data)
        return sealed(files, damaged_bytes(random, index, other))
    if chance < 0.85:
        return _with_wrong_footer(random, data)
    return damaged_bytes(random, data, other)


def damaged_journal(random: Random, text: bytes, other: bytes) -> bytes:
    """Damage a journal object. Two of three have a right foot, so that not only the foot is refused."""
    if random.random() < 0.33:
        return damaged_json(random, text) if random.random() < 0.5 else damaged_bytes(random, text, other)
    lines = text.splitlines(keepends=True)[:-1]
    if random.random() < 0.3 and lines:
        _move_lines(random, lines, other)
    return footed(damaged_json(random, b"".join(lines)) if random.random() < 0.9 else b"".join(lines))


def _move_lines(random: Random, lines: list[bytes], other: bytes) -> None:
    n = random.randrange(len(lines))
    kind = random.choice(("remove", "double", "swap", "splice"))
    if kind == "remove":
        del lines[n]
    elif kind == "double":
        lines.insert(n, lines[n])
    elif kind == "swap":
        lines.append(lines.pop(n))
    else:
        lines[n:n] = other.splitlines(keepends=True)


def footed(lines: bytes) -> bytes:
    """Return lines of a journal with a right foot."""
    files = max(0, lines.count(b"\n") - 1)
    return lines + b'{"files":%d,"crc32c":%d}\n' % (files, crc32c(lines))


def sealed(files: bytes, index: bytes) -> bytes:
    """Return an archive of these files and this index."""
    return files + index + len(index).to_bytes(4, "little")


def _parts(data: bytes) -> tuple[bytes, bytes]:
    """Return the files and the index. Bytes that are not a whole archive are the index."""
    end = len(data) - 4
    start = end - int.from_bytes(data[-4:], "little")
    return (data[:start], data[start:end]) if 0 <= start <= end else (b"", data)


def _with_wrong_footer(random: Random, data: bytes) -> bytes:
    """Return the archive with a wrong footer."""
    size = int.from_bytes(data[-4:], "little")
    near = size + random.randint(-40, 40)
    lie = random.choice([near, near, size ^ 1 << random.randrange(32), len(data) - 4, len(data), *EDGES])
    return data[:-4] + (lie & 0xFFFF_FFFF).to_bytes(4, "little")


def _few(random: Random) -> int:
    return random.choice((1, 1, 1, 2, 3, 4))


def _place(random: Random, data: bytes) -> int:
    """Return a position: anywhere, or, one in three times, near the end, where indexes and footers are."""
    if random.random() < 0.33:
        return max(0, len(data) - random.randrange(64) - 1)
    return random.randrange(len(data) + 1)


def _span(random: Random, data: bytes) -> tuple[int, int]:
    start = _place(random, data)
    longest = len(data) if random.random() < 0.1 else 40
    return start, min(len(data), start + random.randint(0, longest))


def _flipped(random: Random, data: bytes) -> bytes:
    changed = bytearray(data or b"?")
    changed[_place(random, data) % len(changed)] ^= 1 << random.randrange(8)
    return bytes(changed)


def _set(random: Random, data: bytes) -> bytes:
    changed = bytearray(data or b"?")
    changed[_place(random, data) % len(changed)] = random.choice(ODD_BYTES)
    return bytes(changed)


def _randomized(random: Random, data: bytes) -> bytes:
    start, end = _span(random, data)
    return data[:start] + random.randbytes(end - start) + data[end:]


def _inserted(random: Random, data: bytes) -> bytes:
    place = _place(random, data)
    new = bytes(random.choices(ODD_BYTES, k=random.randint(1, 8)))
    return data[:place] + new + data[place:]


def _cut(random: Random, data: bytes) -> bytes:
    return data[: _place(random, data)]


def _beheaded(random: Random, data: bytes) -> bytes:
    return data[_place(random, data) :]


def _removed(random: Random, data: bytes) -> bytes:
    start, end = _span(random, data)
    return data[:start] + data[end:]


def _doubled(random: Random, data: bytes) -> bytes:
    start, end = _span(random, data)
    return data[:end] + data[start:end] * random.choice((1, 1, 2, 10)) + data[end:]


def _with_number(random: Random, data: bytes) -> bytes:
    """Overwrite a u32 with an extreme value."""
    place = _place(random, data)
    return data[:place] + random.choice(EDGES).to_bytes(4, random.choice(("little", "big"))) + data[place + 4 :]


def _spliced(random: Random, data: bytes, other: bytes) -> bytes:
    """Append the end of the other file to the beginning of this one, or insert a piece of the other file."""
    start, end = _span(random, other)
    place = _place(random, data)
    if random.random() < 0.5:
        return data[:place] + other[start:]
    return data[:place] + other[start:end] + data[place:]


BYTE_MUTATIONS: Sequence[Mutation] = (
    _flipped,
    _flipped,
    _set,
    _set,
    _randomized,
    _inserted,
    _cut,
    _beheaded,
    _removed,
    _doubled,
    _with_number,
)


def _found(random: Random, text: bytes, pattern: re.Pattern[bytes]) -> tuple[int, int]:
    """Return the span of a random match near a random position; an empty span if there is none."""
    begin = max(0, random.randrange(len(text) + 1) - NEAR_BYTES // 2)
    spans = [match.span() for match in pattern.finditer(text, begin, begin + NEAR_BYTES)]
    return random.choice(spans) if spans else (begin, begin)


def _odd_token(random: Random, text: bytes) -> bytes:
    """Replace a number or string by an odd one, or by another value."""
    start, end = _found(random, text, TOKEN)
    new = _oddity(random, text[start:end])
    return text[:start] + new + text[end:]


def _oddity(random: Random, token: bytes) -> bytes:
    if random.random() < 0.15:
        return random.choice(ODD_VALUES)
    if token[:1] == b'"':
        odd = random.choice(ODD_STRINGS)
        return b'"' + (token[1:-1] + odd if random.random() < 0.3 else odd) + b'"'
    if token[:1].isdigit() or token[:1] == b"-":
        if random.random() < 0.4 and token.lstrip(b"-").isdigit() and len(token) < 30:
            return str(int(token) + random.choice((-1, 1, -8, 8, 1 << 32, -(1 << 32)))).encode()
        return random.choice(ODD_NUMBERS)
    return random.choice((b"{", b"}", b"[", b"]", b",", b":", b"", b" ", *ODD_VALUES))


def _without_member(random: Random, text: bytes) -> bytes:
    start, end = _found(random, text, MEMBER)
    return text[:start] + text[end:]


def _member_again(random: Random, text: bytes) -> bytes:
    """Repeat a member, perhaps with another value or at another place."""
    start, end = _found(random, text, MEMBER)
    member = text[start:end].removesuffix(b",")
    copy = _odd_token(random, member) if random.random() < 0.5 else member
    place = end if random.random() < 0.7 else _found(random, text, MEMBER)[0]
    comma = b"," if text[place - 1 : place] != b"," else b""
    return text[:place] + comma + (copy + b",") * random.choice((1, 1, 2, 50)) + text[place:]


def _swapped(random: Random, text: bytes) -> bytes:
    """Swap two tokens of any types."""
    first, second = sorted((_found(random, text, TOKEN), _found(random, text, TOKEN)))
    if first[1] > second[0]:
        return text
    between = text[first[1] : second[0]]
    return text[: first[0]] + text[slice(*second)] + between + text[slice(*first)] + text[second[1] :]


def _nested(random: Random, text: bytes) -> bytes:
    """Nest a value deeply."""
    start, end = _found(random, text, TOKEN)
    depth = random.choice((1, 3, 62, 63, 64, 65, 66, 1000))
    opening, closing = random.choice(((b"[", b"]"), (b'{"a":', b"}")))
    value = text[start:end] if random.random() < 0.5 else b"0"
    closed = random.choice((depth, depth, depth - 1, 0))
    return text[:start] + opening * depth + value + closing * closed + text[end:]


def _unknown_member(random: Random, text: bytes) -> bytes:
    """Insert a member that readers have to ignore."""
    place = _found(random, text, MEMBER)[0]
    value = random.choice((*ODD_VALUES, *ODD_NUMBERS, b'{"x":[1,{"y":"\\u0041"}]}', b"[" * 60 + b"]" * 60))
    return text[:place] + b'"x":' + value + b"," + text[place:]


def _spaced(random: Random, text: bytes) -> bytes:
    """Insert white space, which makes the reader of an index leave its fast path."""
    start, end = _found(random, text, TOKEN)
    space = bytes(random.choices(b" \t\r\n", k=random.choice((1, 3, 200))))
    return text[:start] + space + text[start:end] + space + text[end:]


def _changed_text(random: Random, text: bytes) -> bytes:
    return random.choice(BYTE_MUTATIONS)(random, text)


JSON_MUTATIONS: Sequence[Mutation] = (
    _odd_token,
    _odd_token,
    _odd_token,
    _odd_token,
    _without_member,
    _member_again,
    _swapped,
    _nested,
    _unknown_member,
    _spaced,
    _spaced,
    _changed_text,
)


def _huge_string(random: Random, text: bytes) -> bytes:
    start, end = _found(random, text, TOKEN)
    unit = random.choice((b"x", rb"\u0041", rb"\"", "é".encode(), b"\xff", rb"\ud800", b"9", b" "))
    size = random.choice(((1 << 20) - 8, 1 << 20, (1 << 20) + 8, 3 << 20)) // len(unit)
    quote = random.choice((b'"', b'"', b""))
    return text[:start] + quote + unit * size + quote + text[end:]


def _nested_deep(random: Random, text: bytes) -> bytes:
    start = _found(random, text, TOKEN)[0]
    opening = random.choice((b"[", b'{"a":', b'{"a":[', b"[[],"))
    return text[:start] + opening * random.choice((10_000, 200_000)) + text[start:]


def _many_members(random: Random, text: bytes) -> bytes:
    """Insert so many members that the text has several windows. Their names are all equal, or all different."""
    start, end = _found(random, text, MEMBER)
    member = text[start:end].removesuffix(b",")
    count = random.choice((100, 2_000, 10_000))
    if random.random() < 0.5:
        many = (member + b",") * count
    else:
        many = b"".join(b'"%d%b,' % (n, member[1:]) for n in range(count))
    return text[:start] + many[: 4 << 20] + text[start:]


LARGE_JSON_MUTATIONS: Sequence[Mutation] = (_huge_string, _huge_string, _nested_deep, _many_members)
