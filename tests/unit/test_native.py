"""The native part: it is loaded or not, and its checksums are those of a library that is kept."""

import ctypes
import os
import random
import re
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from awscrt.checksums import crc64nvme as awscrt_crc64nvme

from cafcat.native.copy import RowReceiver
from cafcat.native.crc64nvme import crc64nvme_by_instructions
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


@needs_library
@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="needs Linux")
def test_the_library_uses_the_instructions_of_the_processor() -> None:
    """Also if it was compiled by zig, whose __builtin_cpu_supports is always false."""
    loaded = library()
    assert loaded is not None
    [flags] = re.findall(r"^(?:flags|Features)\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)[:1]
    expected = 0
    for bit, names in ((1, ("sse4_2", "crc32")), (2, ("pclmulqdq", "pmull")), (4, ("vpclmulqdq",))):
        expected |= bit if set(names) & set(flags.split()) else 0
    if "avx512f" not in flags.split():
        expected &= ~4
    assert loaded.cafcat_instructions() == expected


@needs_library
def test_crc64nvme_of_every_length() -> None:
    compute = crc64nvme_by_instructions()
    if compute is None:
        pytest.skip("this processor has no multiplication without carries")
    data = random.Random(64).randbytes(2000)
    for size in range(len(data)):
        assert compute(data[:size], 0) == awscrt_crc64nvme(data[:size])
    assert compute(data[7:], awscrt_crc64nvme(data[:7])) == awscrt_crc64nvme(data)
    assert compute(memoryview(bytearray(data))[5:900], 0) == awscrt_crc64nvme(data[5:900])
    assert compute(memoryview(bytearray()), 9) == 9


class RowsInMemory:
    """Functions of libpq that return rows in memory of the C library, and then the last result.

    The connection has received the rows of the first list. With each byte that can be read from its socket, it gets
    those of the next list.
    """

    def __init__(self, received: list[list[bytes]], last: int) -> None:
        memory = ctypes.CDLL(None)
        memory.malloc.restype, memory.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        memory.free.argtypes = [ctypes.c_void_p]
        self.received, self.held = received, 0
        self.socket, self.server = socket.socketpair()

        def get(connection: int, place: int, is_async: int) -> int:
            assert (connection, is_async) == (7, 1)
            if not self.received[0]:
                return 0 if len(self.received) > 1 else last
            row = self.received[0].pop(0)
            address = memory.malloc(len(row))
            ctypes.memmove(address, row, len(row))
            ctypes.c_void_p.from_address(place).value = address
            self.held += 1
            return len(row)

        def release(address: int) -> None:
            memory.free(address)
            self.held -= 1

        def consume(connection: int) -> int:
            assert connection == 7
            self.socket.recv(1)
            self.received.pop(0)
            return 1

        pointer = ctypes.c_void_p
        self.PQgetCopyData = ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer, ctypes.c_int)(get)
        self.PQfreemem = ctypes.CFUNCTYPE(None, pointer)(release)
        self.PQconsumeInput = ctypes.CFUNCTYPE(ctypes.c_int, pointer)(consume)

    def close(self) -> None:
        self.socket.close()
        self.server.close()


@needs_library
@pytest.mark.parametrize("last", [0, -1, -2])
def test_rows_of_every_size_are_received(last: int) -> None:
    loaded = library()
    assert loaded is not None
    random_rows = random.Random(7)
    rows = [random_rows.randbytes(random_rows.choice([1, 3, 9, 10, 11, 400])) for _ in range(500)]
    memory = RowsInMemory([rows.copy()], last)
    receiver = RowReceiver(loaded, memory, 10)  # type: ignore[arg-type]
    taken = []
    result = 1
    while result > 0:
        block, result = receiver.receive(7, memory.socket.fileno())
        taken.append(block)
    assert result == last
    assert b"".join(taken) == b"".join(rows)
    assert max(map(len, taken)) <= 10 + 400
    assert memory.held == 0
    memory.close()


@needs_library
def test_rows_are_received_until_the_server_pauses() -> None:
    loaded = library()
    assert loaded is not None
    with closing(RowsInMemory([[b"a"], [b"b", b"c"], [], [b"d"]], -1)) as memory:
        receiver = RowReceiver(loaded, memory, 10)  # type: ignore[arg-type]
        memory.server.send(b"..")
        assert receiver.receive(7, memory.socket.fileno()) == (b"abc", 0)
        memory.server.send(b".")
        assert receiver.receive(7, memory.socket.fileno()) == (b"d", -1)


def test_the_library_can_be_turned_off() -> None:
    with turned_off():
        assert library() is None
    assert found_with("0") == "None CAFCAT_NATIVE=0"


def test_the_variable_chooses_the_library() -> None:
    assert found_with("1") == found_with("")
    assert (
        found_with("/nowhere/x.so")
        == "None CAFCAT_NATIVE=/nowhere/x.so names no file; CAFCAT_NATIVE=0 turns the native part off"
    )


def test_a_locale_without_utf8_turns_the_library_off() -> None:
    """The library has the names of files in UTF-8, the operating system those of the locale."""
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert found_with("1", **locale) == "None the locale encodes names of files in ascii, not in UTF-8"


def found_with(value: str, **variables: str) -> str:
    """Return what another process finds with this value of CAFCAT_NATIVE: library and reason."""
    program = "from cafcat.native.library import *; print(library() and 'used', why_unused())"
    environ = os.environ | {"CAFCAT_NATIVE": value} | variables
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout.strip()


def test_there_is_a_library_or_a_reason() -> None:
    assert (library() is None) == (why_unused() is not None)
