"""python -m tests.fuzz.native: compare the native part with Python, on random indexes of CAFs, most damaged, and on
random trees of files that change while they are read."""

import argparse
import multiprocessing as mp
import os
import sys
from collections import Counter
from random import Random

from cafcat.errors import CafcatError
from cafcat.formats.caf.reader import CafReader
from cafcat.model import Entry
from cafcat.native.library import library, turned_off, why_unused
from cafcat.testing.formats import BytesArchive
from tests.worlds.memory import in_memory
from tests.worlds.native_packing import check_tree, make_tree

__all__ = ["compare", "random_index"]

DATA = b"0123456789"
MEMBERS = ("start_byte", "end_byte", "crc32c", "modified_ns")
NUMBERS = ["0", "3", "10", "11", "-1", "-0", "007", "1.5", "4294967295", "4294967296", "9223372036854775807"]
NUMBERS += ["9223372036854775808", "-9223372036854775808", "-9223372036854775809", "9" * 19, "9" * 20, ""]
NAMES = [
    b"a",
    b"folder/name.dat",
    b"",
    "ü/日本\U0001f600".encode(),
    b'\\"x',
    b"\\u00e9",
    b"\x1f",
    b"\xc0\x80",
    b"\xe2\x82",
]
PLACES = b'"{}:,\\0123456789-\x00\x7f\x80\xff \n'


def random_index(random: Random) -> bytes:
    """Return an index of some entries, most of them usual, of which some bytes may be changed, added or removed."""
    entries = b",".join(_entry(random, n) for n in range(random.randrange(9)))
    index = bytearray(b'{"format_version":"1.0","files":{' + entries + b"}}")
    for _ in range(random.choice((0, 0, 1, 1, 2))):
        at, byte = random.randrange(len(index)), random.choice(PLACES)
        way = random.randrange(3)
        index[at : at + (way != 1)] = bytes([byte]) * (way != 2)
    return bytes(index)


def _entry(random: Random, number: int) -> bytes:
    is_usual = random.random() < 0.9
    name = b"folder/%04d" % (number - (random.random() < 0.05)) if is_usual else random.choice(NAMES)
    numbers = dict(zip(MEMBERS, ("2", "5", str(random.getrandbits(32)), str(random.getrandbits(62))), strict=True))
    if not is_usual:
        numbers[random.choice(MEMBERS)] = random.choice(NUMBERS)
        for member in random.sample(MEMBERS, random.choice((0, 0, 1, 2))):
            del numbers[member]
    members = ",".join(f'"{member}":{value}' for member, value in numbers.items())
    return b'"' + name + b'":{' + members.encode() + b"}"


def _outcome(index: bytes) -> list[Entry] | str:
    try:
        return list(CafReader(BytesArchive(DATA + index + len(index).to_bytes(4, "little"))).entries())
    except CafcatError as error:
        return str(error)


def compare(index: bytes) -> str:
    """Return the outcome of an index in a word. Raises AssertionError if the two ways differ."""
    with_library = _outcome(index)
    with turned_off():
        without = _outcome(index)
    assert with_library == without, (index, with_library, without)
    return "entries" if isinstance(without, list) else "an error"


def _run(given: tuple[int, int]) -> Counter[str]:
    seed, count = given
    random = Random(seed)
    return Counter(compare(random_index(random)) for _ in range(count))


def _run_trees(given: tuple[int, int]) -> Counter[str]:
    seed, count = given
    random, outcomes = Random(seed), Counter[str]()
    with in_memory() as folder:
        for _ in range(count):
            make_tree(folder / "tree", random)
            outcomes += check_tree(folder / "tree", random)
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.native", description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="number of indexes")
    parser.add_argument("--trees", type=int, default=60_000, help="number of trees, of some 20 files each")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if library() is None:
        print(f"no native part: {why_unused()}", file=sys.stderr)
        return 1
    parts = [(given.seed + n, 1000) for n in range(given.count // 1000)]
    with mp.get_context("spawn").Pool(os.cpu_count()) as pool:
        outcomes: Counter[str] = sum(pool.imap_unordered(_run, parts), Counter())
        print(f"{outcomes.total():,} indexes, no difference: {dict(outcomes)}")
        trees = [(given.seed + n, 100) for n in range(given.trees // 100)]
        outcomes = sum(pool.imap_unordered(_run_trees, trees), Counter())
    print(f"{given.trees:,} trees, no difference: {dict(outcomes)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
