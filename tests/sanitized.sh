#!/bin/sh
# Runs the tests of hostile indexes with a library that is compiled with AddressSanitizer and UndefinedBehaviorSanitizer.
# $1: the folder of Python's programs. Exits with an error at the first access outside of memory.
set -eu
cd "$(dirname "$0")/.."
compiler=${CC:-gcc}
if ! command -v "$compiler" >/dev/null || [ ! -f "$("$compiler" -print-file-name=libasan.so)" ]; then
    echo "tests/sanitized.sh: no compiler with sanitizers (gcc): nothing was run" >&2
    exit "${CAFCAT_REQUIRE_SERVICES:-0}"
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$compiler" -std=gnu11 -O1 -g -fPIC -shared -pthread -fvisibility=hidden -fsanitize=address,undefined -fno-sanitize-recover=all \
    -Wall -Wextra -Werror -o "$folder/libcafcat.so" cafcat/native/source/*.c
# Python's own memory is not looked at: its leaks are no faults of this library.
CAFCAT_NATIVE="$folder/libcafcat.so" LD_PRELOAD="$("$compiler" -print-file-name=libasan.so)" \
    ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc \
    "$1/python" -m pytest -q -p no:cacheprovider tests/property/test_native_index.py tests/property/test_native_rows.py \
    tests/property/test_native_folders.py tests/property/test_native_matching.py \
    tests/property/test_native_extract.py tests/unit/test_native.py \
    tests/unit/test_caf_reader.py tests/property/test_caf_properties.py
