#!/bin/sh
# `make demo`: a real folder that every machine has (Python's own library) in, one file out, compared, and the
# rows in SQL. Everything stays below .demo, which the next run removes.
set -eu
bin=$(cd "$1" && pwd)
here=$(pwd)
demo="$here/.demo"
cafcat="$bin/cafcat"
unset CAFCAT_DATABASE_URL CAFCAT_STORE CAFCAT_CONFIG CAFCAT_PROFILE CAFCAT_TARGET_SIZE || true
export CAFCAT_HOME="$demo/home"

say() {
    printf '\n$'
    for word; do
        case $word in
        *[!A-Za-z0-9_./=-]*) printf ' "%s"' "$word" ;;
        *) printf ' %s' "$word" ;;
        esac
    done
    printf '\n'
}
run() { say "$@"; "$@"; }

if [ -d "$CAFCAT_HOME" ]; then "$cafcat" db stop -q >/dev/null 2>&1 || true; fi
rm -rf "$demo"
mkdir -p "$demo"
trap '"$cafcat" db stop -q >/dev/null 2>&1 || true' EXIT

PATH="$bin:$PATH"
library=$("$bin/python" -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
cd "$(dirname "$library")"
folder=$(basename "$library")
cafcat=cafcat

run cafcat ingest "$folder" --exclude site-packages --exclude __pycache__ --exclude test
run cafcat ls "$folder/json"
run cafcat get "$folder/json/decoder.py" -o "$demo/decoder.py"
run cmp "$folder/json/decoder.py" "$demo/decoder.py"
echo "the same bytes"
run cafcat locate "$folder/json/decoder.py"
run cafcat sql -c "SELECT file_path, caf_file_id, start_byte, end_byte, crc32c, modified_at FROM file_locations WHERE file_path LIKE '$folder/json/%' ORDER BY file_path"
run cafcat sql -c "SELECT id, uuid, state, file_count, size_bytes, committed_at FROM chunks"
run cafcat ingest "$folder" --exclude site-packages --exclude __pycache__ --exclude test
echo
echo "The second time there was nothing to do. Everything is in .demo; \`rm -r .demo\` removes it."
