"""The library in C: it is loaded or not, and its checksums are those of a library that is kept."""

import ctypes
import os
import random
import subprocess
import sys

from cafcat.native.library import library, turned_off, why_unused
from cafcat.support.checksums import crc32c
from tests.worlds.native import needs_library


@needs_library
def test_crc32c_of_every_length_by_instructions_and_by_table() -> None:
    loaded = library()
    assert loaded is not None
    data = random.Random(43).randbytes(2000)
    for function in (loaded.cafcat_crc32c, loaded.cafcat_crc32c_by_table):
        function.restype = ctypes.c_uint32
        function.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint32]
        for size in range(len(data)):
            assert function(data, size, 0) == crc32c(data[:size])
        assert function(data[7:], 1500, crc32c(data[:7])) == crc32c(data[:1507])


def test_the_library_can_be_turned_off() -> None:
    with turned_off():
        assert library() is None
    program = "from cafcat.native.library import library, why_unused; print(library(), why_unused())"
    found = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"CAFCAT_NATIVE": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == "None CAFCAT_NATIVE=0\n"


def test_there_is_a_library_or_a_reason() -> None:
    assert (library() is None) == (why_unused() is not None)
