"""S3 Inventory as a list of objects: reports as described in the Amazon S3 User Guide, and damaged ones."""

import csv
import gzip
import hashlib
import io
import json
import os
import re
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cafcat.errors import (
    CafcatError,
    Conflict,
    Corrupt,
    InvalidInput,
    NotFound,
    NotInstalled,
    SourceFailed,
    Unsupported,
)
from cafcat.sources.kind import SourceContext
from cafcat.sources.s3.inventory import InventoryRow, read_inventory
from tests.worlds.servers.s3_server import S3Server

BUCKET = "photos"
SCHEMA = "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, LastModifiedDate, ETag, StorageClass"
TIME = "2024-02-29T23:59:59.125Z"
TIME_NS = 1_709_251_199_125_000_000
TAG = "d41d8cd98f00b204e9800998ecf8427e"
FOLDER = "reports/photos/daily"
MIB = 1 << 20


def rows(where: object, bucket: str = BUCKET, context: SourceContext | None = None) -> Any:
    return list(read_inventory(str(where), context or SourceContext(), bucket))


def line(key: str, size: object = 5, *, latest: str = "true", marker: str = "false", time: str = TIME) -> list[str]:
    return [BUCKET, quote_plus(key), "", latest, marker, str(size), time, TAG, "STANDARD"]


def as_csv(*lines: list[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(lines)
    return text.getvalue().encode()


PARQUET = pa.schema(
    [
        pa.field("bucket", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("version_id", pa.string()),
        pa.field("is_latest", pa.bool_()),
        pa.field("is_delete_marker", pa.bool_()),
        pa.field("size", pa.int64()),
        pa.field("last_modified_date", pa.timestamp("ms", tz="UTC")),
        pa.field("e_tag", pa.string()),
        pa.field("storage_class", pa.string()),
    ]
)


def record(key: str | None, size: int | None = 5, **others: Any) -> dict[str, Any]:
    when = datetime.fromtimestamp(TIME_NS // 1_000_000_000, UTC).replace(microsecond=125_000)
    found = {"bucket": BUCKET, "key": key, "size": size, "last_modified_date": when, "e_tag": TAG}
    return found | {"is_latest": True, "is_delete_marker": False} | others


def as_parquet(*records: dict[str, Any], schema: pa.Schema = PARQUET, row_group_size: int = 1000) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(records), schema), file, row_group_size=row_group_size)
    return file.getvalue()


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def described(key: str, data: bytes) -> dict[str, Any]:
    return {"key": key, "size": len(data), "MD5checksum": md5(data)}


def manifest(*files: dict[str, Any], **changes: Any) -> bytes:
    said = {
        "sourceBucket": BUCKET,
        "destinationBucket": "arn:aws:s3:::reports-of-ours",
        "version": "2016-11-30",
        "creationTimestamp": "1514944800000",
        "fileFormat": "CSV",
        "fileSchema": SCHEMA,
        "files": list(files),
    }
    return json.dumps({name: value for name, value in (said | changes).items() if value is not None}).encode()


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the local time zone to one that is not UTC."""
    with monkeypatch.context() as context:
        context.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def report(tmp_path: Path) -> Callable[..., Path]:
    """A function that writes data files and their manifest into one folder, and returns the manifest."""

    def write(*files: bytes, ending: str = "csv.gz", **changes: Any) -> Path:
        entries = []
        for n, data in enumerate(files):
            (tmp_path / f"{n}.{ending}").write_bytes(data)
            entries.append(described(f"{FOLDER}/data/{n}.{ending}", data))
        (tmp_path / "manifest.json").write_bytes(manifest(*entries, **changes))
        return tmp_path / "manifest.json"

    return write


def test_the_rows_of_all_data_files_come_in_their_order(report: Callable[..., Path]) -> None:
    files = [gzip.compress(as_csv(line("b", 1), line("a", 0))), gzip.compress(as_csv(line("c", 10**17)))]
    expected = [InventoryRow(key, size, TIME_NS, TAG) for key, size in (("b", 1), ("a", 0), ("c", 10**17))]
    assert rows(report(*files)) == expected


def test_keys_are_decoded_as_s3_encodes_them(report: Callable[..., Path]) -> None:
    """A space is encoded as "+": see Cloud Custodian's issue 1997."""
    fields = line("")
    encoded = ["a+b%2Bc", "caf%C3%A9", "50%25", "a/b", "%22%2C%0A", "日本"]
    lines = [[*fields[:1], key, *fields[2:]] for key in encoded]
    found = [row.key for row in rows(report(gzip.compress(as_csv(*lines))))]
    assert found == ["a b+c", "café", "50%", "a/b", '",\n', "日本"]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30), max_size=20))
def test_every_key_survives_csv_and_parquet(keys: list[str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        header = [name.strip() for name in SCHEMA.split(",")]
        Path(folder, "list.csv").write_bytes(as_csv(header, *map(line, keys)))
        Path(folder, "list.parquet").write_bytes(as_parquet(*map(record, keys)))
        assert [row.key for row in rows(f"{folder}/list.csv")] == keys
        assert [row.key for row in rows(f"{folder}/list.parquet")] == keys


def test_only_current_versions_that_are_not_deleted_are_listed(report: Callable[..., Path]) -> None:
    data = as_csv(
        line("kept"),
        line("old", latest="false"),
        line("deleted", "", marker="true"),
        line("in capitals", latest="TRUE", marker="FALSE"),
        line("old deleted", "", latest="False", marker="True"),
    )
    assert [row.key for row in rows(report(gzip.compress(data)))] == ["kept", "in capitals"]


def test_without_columns_of_versions_and_tags_every_row_counts(report: Callable[..., Path]) -> None:
    data = gzip.compress(as_csv([BUCKET, "a", "7", "2024-02-29T23:59:59.125Z"]))
    found = rows(report(data, fileSchema="Bucket, Key, Size, LastModifiedDate"))
    assert found == [InventoryRow("a", 7, TIME_NS, None)]


@pytest.mark.parametrize(
    ("text", "expected_ns"),
    [
        ("2024-02-29T23:59:59.125Z", TIME_NS),
        ("2024-02-29T23:59:59Z", TIME_NS - 125_000_000),
        ("2024-03-01T01:59:59.125+02:00", TIME_NS),
        ("2024-02-29T23:59:59.125", TIME_NS),
        ("1970-01-01T00:00:00.000Z", 0),
    ],
)
def test_times_are_in_utc(report: Callable[..., Path], elsewhere: None, text: str, expected_ns: int) -> None:
    [row] = rows(report(gzip.compress(as_csv(line("a", time=text)))))
    assert row.modified_ns == expected_ns


def test_tags_lose_quotes_and_empty_ones_are_none(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text(
        f'Key,Size,LastModifiedDate,ETag\na,1,{TIME},"""tag"""\nb,1,{TIME},\nc,1,{TIME},tag-2\n'
    )
    assert [row.etag for row in rows(tmp_path / "list.csv")] == ["tag", None, "tag-2"]


@pytest.mark.parametrize("folder", [".", "data", f"{FOLDER}/data", "../data"])
def test_data_files_are_found_where_copies_of_a_report_have_them(tmp_path: Path, folder: str) -> None:
    data = gzip.compress(as_csv(line("a")))
    here = tmp_path / "2024-03-01T01-00Z"
    here.mkdir()
    (here / folder).mkdir(parents=True, exist_ok=True)
    (here / folder / "0.csv.gz").write_bytes(data)
    key = {".": f"{FOLDER}/data/0.csv.gz", "data": "/data/0.csv.gz"}.get(folder, f"{FOLDER}/data/0.csv.gz")
    (here / "manifest.json").write_bytes(manifest(described(key, data)))
    assert [row.key for row in rows(here / "manifest.json")] == ["a"]


def test_no_manifest_leads_out_of_its_folder(tmp_path: Path) -> None:
    data = gzip.compress(as_csv(line("a")))
    here = tmp_path / "here"
    (here / "x").mkdir(parents=True)
    for folder in (tmp_path, here / "x"):
        (folder / "secret.csv.gz").write_bytes(data)
    for key in ("../secret.csv.gz", "x/../../secret.csv.gz", f"{tmp_path}/secret.csv.gz"):
        (here / "manifest.json").write_bytes(manifest(described(key, data)))
        with pytest.raises(NotFound, match=r"its data file secret\.csv\.gz is missing") as caught:
            read_inventory(str(here / "manifest.json"), SourceContext(), BUCKET)
        assert caught.value.hint


def test_an_inventory_of_another_bucket_is_refused_at_once(report: Callable[..., Path]) -> None:
    where = report(gzip.compress(as_csv(line("a"))))
    with pytest.raises(InvalidInput, match="lists bucket 'photos', not 'other'"):
        read_inventory(str(where), SourceContext(), "other")


@pytest.mark.parametrize("column", ["Size", "LastModifiedDate", "Key"])
def test_a_column_that_is_missing_is_named_at_once(report: Callable[..., Path], column: str) -> None:
    schema = ", ".join(name for name in SCHEMA.split(", ") if name != column)
    where = report(gzip.compress(as_csv(line("a"))), fileSchema=schema)
    with pytest.raises(InvalidInput, match=f"no column {column}"):
        read_inventory(str(where), SourceContext(), BUCKET)


def test_orc_is_refused_and_the_message_names_other_formats(report: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "list.orc").write_bytes(b"ORC")
    for where in (report(b"ORC", ending="orc", fileFormat="ORC"), tmp_path / "list.orc"):
        with pytest.raises(Unsupported, match=r"is in ORC format.*CSV or Parquet"):
            rows(where)


def test_an_unknown_format_is_not_read(report: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="unknown fileFormat 'Avro'"):
        rows(report(b"", fileFormat="Avro"))
    (tmp_path / "list.txt").write_bytes(b"")
    with pytest.raises(InvalidInput, match=r"list\.txt.*manifest\.json"):
        rows(tmp_path / "list.txt")


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b"[]",
        b"\xff",
        b'{"sourceBucket": ' + b"9" * 5000 + b"}",
        manifest(sourceBucket=None),
        manifest(sourceBucket=["photos"]),
        manifest(fileFormat=None),
        manifest(fileSchema=None),
        manifest(files=None),
        manifest(files={"key": "a"}),
        manifest("a"),
        manifest({"key": "a", "size": 1}),
        manifest({"key": "a", "size": "1", "MD5checksum": "0"}),
        manifest({"key": "", "size": 1, "MD5checksum": "0"}),
        manifest({"key": "a\0b", "size": 1, "MD5checksum": "0"}),
    ],
)
def test_invalid_manifests_are_refused_at_once(tmp_path: Path, said: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(said)
    with pytest.raises(Corrupt, match=r"manifest\.json"):
        read_inventory(str(tmp_path / "manifest.json"), SourceContext(), BUCKET)


def test_manifest_that_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.json").mkdir()
    for name, kind in (("nothing.json", NotFound), ("folder.json", InvalidInput), ("a\0b.json", InvalidInput)):
        with pytest.raises(kind):
            rows(tmp_path / name)
    if os.geteuid() != 0:
        (tmp_path / "locked.json").touch(0)
        with pytest.raises(SourceFailed):
            rows(tmp_path / "locked.json")


def test_a_manifest_larger_than_any_is_not_read(tmp_path: Path) -> None:
    with open(tmp_path / "manifest.json", "wb") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(Unsupported, match="67,108,865 bytes is too large"):
        rows(tmp_path / "manifest.json")


def taken_before_error(where: Path) -> tuple[list[str], CafcatError]:
    found = read_inventory(str(where), SourceContext(), BUCKET)
    keys: list[str] = []
    with pytest.raises(Corrupt) as caught:
        keys.extend(row.key for row in found)
    return keys, caught.value


def test_a_data_file_of_another_size_is_damaged(report: Callable[..., Path], tmp_path: Path) -> None:
    where = report(gzip.compress(as_csv(line("a"))))
    with open(tmp_path / "0.csv.gz", "ab") as file:
        file.write(b"\0")
    keys, error = taken_before_error(where)
    assert keys == []
    assert "0.csv.gz" in str(error)
    assert re.search(r"has [0-9]+ bytes, but its manifest has [0-9]+;", str(error))


def test_a_data_file_with_other_bytes_is_damaged(report: Callable[..., Path], tmp_path: Path) -> None:
    """The gzip data and the CSV are whole, but belong to another manifest."""
    data = [gzip.compress(as_csv(line(key)), mtime=0) for key in ("a", "b")]
    assert len(data[0]) == len(data[1])
    where = report(data[0])
    (tmp_path / "0.csv.gz").write_bytes(data[1])
    _, error = taken_before_error(where)
    assert md5(data[0]) in str(error)


def test_the_checksum_of_a_data_file_may_have_capitals(tmp_path: Path) -> None:
    data = gzip.compress(as_csv(line("a")), mtime=0)
    (tmp_path / "0.csv.gz").write_bytes(data)
    assert md5(data).upper() != md5(data)
    said = described("0.csv.gz", data) | {"MD5checksum": md5(data).upper()}
    (tmp_path / "manifest.json").write_bytes(manifest(said))
    assert [row.key for row in rows(tmp_path / "manifest.json")] == ["a"]


def test_damaged_gzip_data_are_corrupt(tmp_path: Path) -> None:
    whole = gzip.compress(as_csv(SCHEMA.split(", "), *(line(f"key{n}", n) for n in range(1000))))
    (tmp_path / "whole.csv.gz").write_bytes(whole)
    expected = rows(tmp_path / "whole.csv.gz")
    assert len(expected) == 1000
    cut = [whole[:-1], whole[:-8], whole[: len(whole) // 2], whole[:20]]
    flipped = [whole[:n] + bytes([whole[n] ^ 0x40]) + whole[n + 1 :] for n in range(20, len(whole), 17)]
    for data in [*cut, *flipped, whole + b"garbage"]:
        (tmp_path / "damaged.csv.gz").write_bytes(data)
        with pytest.raises(Corrupt, match=r"damaged\.csv\.gz"):
            rows(tmp_path / "damaged.csv.gz")
    (tmp_path / "twice.csv.gz").write_bytes(whole[:-1] + whole[-1:] + gzip.compress(as_csv(line("more"))))
    assert rows(tmp_path / "twice.csv.gz")[-1].key == "more"


HEADER = "Bucket,Key,Size,LastModifiedDate,ETag\n"


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        (f"photos,a,1,{TIME}\n", "line 2", "4 columns, expected 5"),
        (f"photos,a,1,{TIME},t,more\n", "line 2", "6 columns"),
        (f"photos,a,1,{TIME},t\nphotos,a,-1,{TIME},t\n", "line 3", "not a size: '-1'"),
        (f"photos,a,1_0,{TIME},t\n", "line 2", "not a size"),
        (f"photos,a,٣,{TIME},t\n", "line 2", "not a size"),
        (f"photos,a,{'9' * 19},{TIME},t\n", "line 2", "not a size"),
        (f"photos,a,,{TIME},t\n", "line 2", "not a size: ''"),
        ("photos,a,1,yesterday,t\n", "line 2", "not a time: 'yesterday'"),
        ("photos,a,1,,t\n", "line 2", "not a time"),
        (f"photos,,1,{TIME},t\n", "line 2", "an empty key"),
        (f"photos,%ff,1,{TIME},t\n", "line 2", "not UTF-8: '%ff'"),
        (f"photos,a,1,{TIME},t\x01\n", "line 2", "not an entity tag"),
        (f'photos,a"b"c,1,{TIME},t\nphotos,"a"b,1,{TIME},t\n', "line 3", "not CSV"),
        (f'photos,a,1,{TIME},t\nphotos,"a,1,{TIME},t\n', "line 3", "not CSV"),
    ],
)
def test_a_malformed_row_is_named(tmp_path: Path, text: str, where: str, what: str) -> None:
    (tmp_path / "list.csv").write_text(HEADER + text)
    keys, error = taken_before_error(tmp_path / "list.csv")
    assert len(keys) == text.count("\n") - 1
    assert f"list.csv, {where}: " in error.message
    assert what in error.message


def test_text_that_is_not_utf8_is_corrupt(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_bytes(HEADER.encode() + b"photos,a\xff,1,,\n")
    _, error = taken_before_error(tmp_path / "list.csv")
    assert "list.csv, line 2: not UTF-8" in str(error)


def test_a_row_of_another_bucket_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text(f"{HEADER}photos,a,1,{TIME},t\nother,b,1,{TIME},t\n")
    with pytest.raises(InvalidInput, match="line 3: this row is about bucket 'other', not 'photos'"):
        rows(tmp_path / "list.csv")


def test_endless_line_needs_little_memory(tmp_path: Path) -> None:
    """A kilobyte of gzip data may be a line of a megabyte."""
    for n, text in enumerate((b"x" * (64 * MIB), b'"' + b"x\n" * (32 * MIB))):
        where = tmp_path / f"{n}.csv.gz"
        where.write_bytes(gzip.compress(HEADER.encode() + text))
        tracemalloc.start()
        try:
            _, error = taken_before_error(where)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert (": longer than 65,536 bytes", ": not CSV: ")[n] in str(error)
        assert peak < 8 * MIB


def test_a_single_file_names_its_columns_itself(tmp_path: Path) -> None:
    text = f"last_modified_date,Size,key,storage_class\n{TIME},3,a+b,GLACIER\n\n{TIME},4,c,STANDARD\n"
    (tmp_path / "list.CSV").write_text(text)
    (tmp_path / "list.csv.gz").write_bytes(gzip.compress(text.encode()))
    expected = [InventoryRow("a b", 3, TIME_NS, None), InventoryRow("c", 4, TIME_NS, None)]
    assert rows(tmp_path / "list.CSV") == rows(tmp_path / "list.csv.gz") == expected


@pytest.mark.parametrize("text", ["", "photos,a,1,now,t\n", "Key,LastModifiedDate\n"])
def test_a_single_file_without_names_of_columns_is_refused_at_once(tmp_path: Path, text: str) -> None:
    (tmp_path / "list.csv").write_text(text)
    with pytest.raises(InvalidInput, match=r"no column .*Size.*in its first line"):
        read_inventory(str(tmp_path / "list.csv"), SourceContext(), BUCKET)


def test_csv_is_read_as_it_comes(report: Callable[..., Path], tmp_path: Path) -> None:
    lines = as_csv(*(line(f"{n:08}" * 20, n) for n in range(50_000)))
    where = report(gzip.compress(lines, 1))
    tracemalloc.start()
    try:
        count = sum(1 for _ in read_inventory(str(where), SourceContext(), BUCKET))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 50_000
    assert peak < 5 * MIB < len(lines)


def parquet_report(report: Callable[..., Path], *files: bytes) -> Path:
    return report(*files, ending="parquet", fileFormat="Parquet", fileSchema="message s3.inventory { ... }")


def test_parquet_gives_the_same_rows_as_csv(report: Callable[..., Path]) -> None:
    files = [as_parquet(record("a+b", 1), record("%41", 0)), as_parquet(record("c", e_tag=None))]
    expected = [
        InventoryRow("a+b", 1, TIME_NS, TAG),
        InventoryRow("%41", 0, TIME_NS, TAG),
        InventoryRow("c", 5, TIME_NS, None),
    ]
    assert rows(parquet_report(report, *files)) == expected


def test_only_current_versions_in_parquet_are_listed(report: Callable[..., Path]) -> None:
    data = as_parquet(
        record("kept"),
        record("old", is_latest=False),
        record("deleted", None, is_delete_marker=True, e_tag=None),
        record("unversioned", is_latest=None, is_delete_marker=None),
    )
    assert [row.key for row in rows(parquet_report(report, data))] == ["kept", "unversioned"]


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_times_of_parquet_have_their_own_units(tmp_path: Path, unit: str) -> None:
    schema = PARQUET.set(
        PARQUET.get_field_index("last_modified_date"), pa.field("LastModifiedDate", pa.timestamp(unit))
    )
    one = record("a")
    one["LastModifiedDate"] = one.pop("last_modified_date").replace(tzinfo=None)
    (tmp_path / "list.parquet").write_bytes(as_parquet(one, schema=schema))
    assert rows(tmp_path / "list.parquet") == [InventoryRow("a", 5, TIME_NS, TAG)]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view()])
def test_texts_of_parquet_may_have_other_layouts(tmp_path: Path, kind: pa.DataType) -> None:
    """Other programs may write a report again after they have read it."""
    schema = PARQUET.set(PARQUET.get_field_index("key"), pa.field("key", kind))
    (tmp_path / "list.parquet").write_bytes(as_parquet(record("a"), schema=schema))
    assert rows(tmp_path / "list.parquet") == [InventoryRow("a", 5, TIME_NS, TAG)]


@pytest.mark.parametrize("column", ["key", "size", "last_modified_date"])
def test_columns_that_parquet_lacks_are_named(tmp_path: Path, column: str) -> None:
    schema = PARQUET.remove(PARQUET.get_field_index(column))
    (tmp_path / "list.parquet").write_bytes(as_parquet(record("a"), schema=schema))
    with pytest.raises(InvalidInput, match=r"list\.parquet has no column"):
        rows(tmp_path / "list.parquet")


@pytest.mark.parametrize(
    ("column", "kind", "value"),
    [
        ("key", pa.binary(), b"a"),
        ("size", pa.float64(), 1.0),
        ("last_modified_date", pa.int64(), 0),
        ("is_latest", pa.string(), "true"),
    ],
)
def test_columns_of_parquet_have_the_types_of_s3(
    tmp_path: Path, column: str, kind: pa.DataType, value: Any
) -> None:
    schema = PARQUET.set(PARQUET.get_field_index(column), pa.field(column, kind))
    (tmp_path / "list.parquet").write_bytes(as_parquet(record("a") | {column: value}, schema=schema))
    with pytest.raises(InvalidInput, match=f"column '{column}' has the type {kind}, expected"):
        rows(tmp_path / "list.parquet")


@pytest.mark.parametrize(
    "wrong", [{"key": ""}, {"size": None}, {"size": -1}, {"last_modified_date": None}, {"e_tag": "a\nb"}]
)
def test_a_malformed_row_of_parquet_is_named(tmp_path: Path, wrong: dict[str, Any]) -> None:
    (tmp_path / "list.parquet").write_bytes(as_parquet(record("a"), record("b") | wrong))
    keys, error = taken_before_error(tmp_path / "list.parquet")
    assert keys == ["a"]
    assert "list.parquet, row 2:" in str(error)


def test_a_row_of_another_bucket_is_refused_in_parquet_too(tmp_path: Path) -> None:
    (tmp_path / "list.parquet").write_bytes(as_parquet(record("a"), record("b", bucket="other")))
    with pytest.raises(InvalidInput, match="row 2: this row is about bucket 'other'"):
        rows(tmp_path / "list.parquet")


def test_a_key_of_parquet_that_is_not_utf8_is_corrupt(tmp_path: Path) -> None:
    keys = pa.array([b"a\xff"], pa.binary()).view(pa.string())
    table = pa.table({"key": keys, "size": [1], "last_modified_date": pa.array([0], "timestamp[ms]")})
    pq.write_table(table, tmp_path / "list.parquet")
    _, error = taken_before_error(tmp_path / "list.parquet")
    assert "list.parquet: damaged Parquet: 'utf-8' codec" in str(error)


def test_damaged_parquet_does_not_match_its_manifest(report: Callable[..., Path], tmp_path: Path) -> None:
    data = as_parquet(*(record(f"key{n}") for n in range(10)))
    where = parquet_report(report, data)
    for n in range(0, len(data), 211):
        (tmp_path / "0.parquet").write_bytes(data[:n] + bytes([data[n] ^ 1]) + data[n + 1 :])
        keys, error = taken_before_error(where)
        assert keys == []
        assert "MD5" in str(error)


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" + bytes(100) + b"PAR1", b"x" * 1000])
def test_other_files_are_corrupt_parquet(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "list.parquet").write_bytes(data)
    _, error = taken_before_error(tmp_path / "list.parquet")
    assert "list.parquet: damaged Parquet" in str(error)


def test_parquet_that_is_cut_or_changed_gives_corrupt_or_rows(tmp_path: Path) -> None:
    data = as_parquet(*(record(f"key{n}") for n in range(10)))
    where = tmp_path / "list.parquet"
    errors = 0
    for n in range(0, len(data), 37):
        for damaged in (data[:n], data[:n] + bytes([data[n] ^ 0x10]) + data[n + 1 :]):
            where.write_bytes(damaged)
            try:
                rows(where)
            except (Corrupt, InvalidInput):
                errors += 1
    assert errors > len(data) // 37


def test_parquet_is_read_piece_by_piece(report: Callable[..., Path]) -> None:
    """The file has one row group, and keys that do not compress."""
    keys = [hashlib.sha512(b"%d" % n).hexdigest() for n in range(200_000)]
    table = pa.table(
        {"key": keys, "size": [1] * len(keys), "last_modified_date": pa.array([0] * len(keys), "timestamp[ms]")}
    )
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=len(keys), use_dictionary=False)
    where = parquet_report(report, file.getvalue())
    del table, keys
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        found = read_inventory(str(where), SourceContext(), BUCKET)
        held = [pa.total_allocated_bytes() - before for _ in found]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(held) == 200_000
    assert max(held) < 8 * MIB
    assert peak < 16 * MIB < len(file.getvalue())


def test_without_pyarrow_parquet_is_refused_with_a_remedy(
    report: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    where = parquet_report(report, as_parquet(record("a")))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(NotInstalled, match=r"pip install '\.\[inventory\]'"):
        read_inventory(str(where), SourceContext(), BUCKET)


def test_neither_pyarrow_nor_a_client_is_loaded_for_csv(report: Callable[..., Path]) -> None:
    import subprocess

    where = report(gzip.compress(as_csv(line("a"))))
    script = (
        "import sys; from cafcat.sources.kind import SourceContext\n"
        "from cafcat.sources.s3.inventory import read_inventory\n"
        f"assert len(list(read_inventory({str(where)!r}, SourceContext(), {BUCKET!r}))) == 1\n"
        "print(*{'pyarrow', 'boto3', 'botocore', 'obstore', 'urllib3'} & sys.modules.keys())"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "\n"


@pytest.fixture
def s3_report(s3_server: S3Server, s3_bucket: str, s3_environment: None) -> Iterator[Callable[..., str]]:
    """A function that writes data files and their manifest into the bucket, and returns the manifest's URL."""
    client = s3_server.client()

    def write(*files: bytes, ending: str, **changes: Any) -> str:
        entries = []
        for n, data in enumerate(files):
            client.put_object(Bucket=s3_bucket, Key=f"{FOLDER}/data/{n}.{ending}", Body=data)
            entries.append(described(f"{FOLDER}/data/{n}.{ending}", data))
        body = manifest(*entries, destinationBucket=f"arn:aws:s3:::{s3_bucket}", **changes)
        client.put_object(Bucket=s3_bucket, Key=f"{FOLDER}/2024-03-01T01-00Z/manifest.json", Body=body)
        return f"s3://{s3_bucket}/{FOLDER}/2024-03-01T01-00Z/manifest.json"

    yield write
    client.close()


def test_report_in_a_bucket_is_read(s3_report: Callable[..., str], s3_bucket: str) -> None:
    incompressible = [hashlib.sha512(b"%d" % n).hexdigest() for n in range(20_000)]
    csv_file = gzip.compress(as_csv(*map(line, incompressible)))
    assert len(csv_file) > MIB
    asked: list[str] = []

    def options_of(url: str) -> dict[str, str]:
        asked.append(url)
        return {}

    url = s3_report(csv_file, gzip.compress(as_csv(line("last"))), ending="csv.gz")
    assert [row.key for row in rows(url, context=SourceContext(options_of=options_of))] == [*incompressible, "last"]
    assert asked == [url] + [f"s3://{s3_bucket}/{FOLDER}/data/{n}.csv.gz" for n in range(2)]

    parquet_file = as_parquet(*map(record, incompressible), row_group_size=7000)
    url = s3_report(parquet_file, ending="parquet", fileFormat="Parquet")
    assert [row.key for row in rows(url)] == incompressible


def test_a_single_object_is_an_inventory_too(
    s3_report: Callable[..., str], s3_bucket: str, s3_server: S3Server
) -> None:
    s3_report(as_parquet(record("a")), as_csv(SCHEMA.split(", "), line("b")), ending="csv")
    assert [row.key for row in rows(f"s3://{s3_bucket}/{FOLDER}/data/1.csv")] == ["b"]


def test_missing_objects_are_not_found(s3_report: Callable[..., str], s3_bucket: str) -> None:
    with pytest.raises(NotFound, match=r"s3://.*nothing\.json"):
        rows(f"s3://{s3_bucket}/nothing.json")
    url = s3_report(gzip.compress(as_csv(line("a"))), ending="csv.gz", sourceBucket="other")
    with pytest.raises(InvalidInput, match="lists bucket 'other'"):
        rows(url)


def test_an_inventory_that_is_replaced_while_it_is_read_is_not_mixed_with_the_new_one(
    s3_report: Callable[..., str], s3_bucket: str, s3_server: S3Server
) -> None:
    keys = [hashlib.sha512(b"%d" % n).hexdigest() for n in range(40_000)]
    data = [as_parquet(*map(record, ordered), row_group_size=4000) for ordered in (keys, keys[::-1])]
    s3_report(data[0], ending="parquet", fileFormat="Parquet")
    found = iter(read_inventory(f"s3://{s3_bucket}/{FOLDER}/data/0.parquet", SourceContext(), BUCKET))
    assert next(found).key == keys[0]
    client = s3_server.client()
    client.put_object(Bucket=s3_bucket, Key=f"{FOLDER}/data/0.parquet", Body=data[1])
    client.close()
    with pytest.raises(Conflict):
        list(found)


@pytest.mark.parametrize("destination", [None, "", "arn:aws:s3:::", "arn:aws:s3:::x"])
def test_a_manifest_has_to_say_where_its_files_are(
    s3_report: Callable[..., str], s3_bucket: str, s3_server: S3Server, destination: str | None
) -> None:
    client = s3_server.client()
    body = manifest(described("0.csv.gz", b""), destinationBucket=destination)
    client.put_object(Bucket=s3_bucket, Key="manifest.json", Body=body)
    client.close()
    with pytest.raises((Corrupt, NotFound)) as caught:
        rows(f"s3://{s3_bucket}/manifest.json")
    assert "manifest.json is not a valid manifest: its value 'destinationBucket'" in str(caught.value)


def test_object_that_differs_from_the_manifest_is_corrupt(
    s3_report: Callable[..., str], s3_bucket: str, s3_server: S3Server
) -> None:
    data = [as_parquet(record(key)) for key in ("a", "b")]
    assert len(data[0]) == len(data[1])
    url = s3_report(data[0], ending="parquet", fileFormat="Parquet")
    client = s3_server.client()
    client.put_object(Bucket=s3_bucket, Key=f"{FOLDER}/data/0.parquet", Body=data[1])
    client.close()
    with pytest.raises(Corrupt, match="MD5"):
        rows(url)
