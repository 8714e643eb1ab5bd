"""Archives of the original programs: `inspect` lists their files as expected, or refuses them in one line.

`convert` makes a CAF with the same contents of each listed archive.
"""

import hashlib
import itertools
import json
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

import cafcat
from cafcat.errors import CafcatError, Corrupt, Refused, Unsupported
from cafcat.support.checksums import crc32c
from tests.worlds.archives.vector_files import (
    FIXTURES_OF_OTHERS,
    VECTORS,
    needs_fixtures,
    vector_path,
    with_fixtures,
)

SUFFIXES = {".caf": "caf", ".car": "car", ".cio": "chunkio", ".clp": "clp-s"}
OWN = sorted(str(path.relative_to(VECTORS)) for path in VECTORS.rglob("*") if path.suffix in SUFFIXES)
ARCHIVES = with_fixtures([*OWN, *FIXTURES_OF_OTHERS])
REFUSED = {
    "caf/odd_bad_utf8_name.caf": Corrupt,
    "caf/odd_case_keys.caf": Corrupt,
    "caf/odd_end_before_start.caf": Corrupt,
    "caf/odd_files_list.caf": Corrupt,
    "caf/odd_float_int.caf": Corrupt,
    "caf/odd_footer_big.caf": Corrupt,
    "caf/odd_footer_plus1.caf": Corrupt,
    "caf/odd_missing_end.caf": Corrupt,
    "caf/odd_negative.caf": Corrupt,
    "caf/odd_no_version.caf": Corrupt,
    "caf/odd_past_eof.caf": Corrupt,
    "caf/odd_pretty_trailing_comma.caf": Corrupt,
    "caf/odd_three_bytes.caf": Corrupt,
    "caf/odd_truncated_1.caf": Corrupt,
    "caf/odd_version_number.caf": Corrupt,
    "car/gocar/badheaderlength.car": Unsupported,
    "car/gocar/sample-corrupt-pragma.car": Corrupt,
    "chunkio/open_only_no_chunks.cio": Corrupt,  # an empty file: its format cannot be detected
    "clp/bad_bad_magic.clp": Unsupported,
    "clp/bad_trunc.clp": Corrupt,
}
DAMAGED = "chunkio/corrupt_content10.cio"
"""The archive is listed, but one content does not match its header."""
NAMELESS = ("caf/names.go.caf", "caf/names.ts.caf")
"""An entry of these archives has no name, which cafcat does not write."""
Answer = list[tuple[str, int, str | None]]
"""Name, size and SHA-256 of the content, in order of the names; None if the expected answer lacks it."""


def plain(value: Any) -> str:
    return str(value["/"] if isinstance(value, dict) else value)


def answer_of(name: str) -> Answer | None:
    """Return the expected files from the JSON beside an archive; None if there is none."""
    path = vector_path(name)
    if name.startswith("caf/odd_"):
        dump = json.loads((VECTORS / "caf/odd_reader_behaviour.json").read_text())[path.name]["ts_dump"]
        return sorted((file["path"], file["size"], file["sha256"]) for file in dump)
    if path.suffix == ".caf":
        files = json.loads(path.with_suffix("").with_suffix(".expected.json").read_text())["files"]
        return sorted((file["path"], file["size"], file["sha256"]) for file in files)
    beside = path.with_name(f"{path.name.split('.')[0]}.json")
    if path.suffix == ".car" and beside.exists():
        blocks = json.loads(beside.read_text())["blocks"]
        return sorted({(plain(block["cid"]), block["blockLength"], block.get("sha256")) for block in blocks})
    if path.suffix == ".cio":
        records = json.loads(beside.read_text())["original_reader"]
        return [(f"{path.name}/{one['begin']:016x}", one["len"], one["sha256"]) for one in records]
    if path.suffix == ".clp":
        said = json.loads(path.with_name(f"{path.name}.json").read_text())
        [table] = [packet["content"]["files"] for packet in said["packets"] if packet["type"] == 1]
        starts = [file["o"] for file in table] + [said["compressed_size"] - 64 - said["metadata_section_size"]]
        sizes = [end - start for start, end in itertools.pairwise(starts)]
        return sorted((file["n"], size, None) for file, size in zip(table, sizes, strict=True))
    return None


@pytest.fixture(autouse=True)
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", ARCHIVES)
def test_inspect_lists_the_expected_files_or_refuses(name: str) -> None:
    kind = REFUSED.get(name)
    if kind is not None:
        with pytest.raises(kind) as caught:
            list(cafcat.inspect(vector_path(name)).entries)
        assert "\n" not in str(caught.value)
        return
    inspection = cafcat.inspect(vector_path(name))
    assert inspection.format == SUFFIXES[Path(name).suffix]
    assert (inspection.object, inspection.size_bytes) == (str(vector_path(name)), vector_path(name).stat().st_size)
    entries = inspection.blocks() if inspection.format == "car" else inspection.entries
    found = sorted((entry.path, entry.size_bytes) for entry in entries)
    expected = answer_of(name)
    assert found or "empty_archive" in name
    assert expected is None or found == [line[:2] for line in expected]


def test_version_and_roots_are_as_expected() -> None:
    for name in OWN:
        beside = VECTORS / name.split(".")[0]
        if name.startswith("car/js"):
            said = json.loads(beside.with_suffix(".json").read_text())
            about = cafcat.inspect(vector_path(name)).about()
            assert about["roots"] == said["roots"]
            assert about["version"] == (2 if ".v2" in name else 1)
            assert about["fully_indexed"] == ("fullyindexed" in name)
        elif name.startswith("clp/v"):
            said = json.loads((VECTORS / f"{name}.json").read_text())
            about = cafcat.inspect(vector_path(name)).about()
            assert (about["version"], about["log_bytes"]) == (said["version"], said["uncompressed_size"])
            assert [(one["type"], one["size_bytes"]) for one in about["packets"]] == [
                (one["type"], one["size"]) for one in said["packets"]
            ]
            ranges = [one["content"] for one in said["packets"] if one["type"] == 3]
            assert [(one["file_name"], one["start"], one["end"]) for one in about.get("ranges", [])] == [
                (one["f"]["_filename"], one["s"], one["e"]) for one in (ranges[0] if ranges else [])
            ]


def contents(path: Path) -> Iterator[tuple[str, int, str]]:
    data = path.read_bytes()
    for entry in cafcat.inspect(path).entries:
        content = data[entry.start_byte : entry.end_byte]
        assert crc32c(content) == entry.crc32c
        yield entry.path, len(content), hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("name", ARCHIVES)
def test_convert_makes_a_caf_with_these_contents_or_leaves_nothing(name: str, tmp_path: Path) -> None:
    kind = Refused if name in NAMELESS else Corrupt if name == DAMAGED else REFUSED.get(name)
    if kind is not None:
        with pytest.raises(kind):
            cafcat.convert(vector_path(name), "out.caf")
        assert list(tmp_path.iterdir()) == []
        return
    report = cafcat.convert(vector_path(name), "out.caf")
    found = sorted(contents(tmp_path / "out.caf"))
    assert (report.files, report.bytes) == (len(found), sum(line[1] for line in found))
    listed = sorted((entry.path, entry.size_bytes) for entry in cafcat.inspect(vector_path(name)).entries)
    assert [line[:2] for line in found] == listed
    expected = answer_of(name)
    if expected is not None:
        pairs = zip(found, expected, strict=True)
        assert [(*line[:2], line[2] if said[2] else None) for line, said in pairs] == expected


@pytest.mark.parametrize("name", [name for name in OWN if name.startswith("clp/v")])
def test_clp_archives_come_out_byte_for_byte(name: str) -> None:
    report = cafcat.convert(vector_path(name), "again.clp")
    assert Path("again.clp").read_bytes() == (VECTORS / name).read_bytes()
    assert report.size_bytes == (VECTORS / name).stat().st_size
    assert report.files == len(list(cafcat.inspect(vector_path(name)).entries))


@pytest.mark.parametrize("name", ["clp/v0.5.0_two_files.clp", "chunkio/many_small.cio", "car/js/basic.car"])
def test_archives_that_are_cut_anywhere_leave_nothing(name: str, tmp_path: Path) -> None:
    data = (VECTORS / name).read_bytes()
    cut = tmp_path / "cut"
    for size in range(0, len(data), max(1, len(data) // 60)):
        cut.write_bytes(data[:size])
        try:
            cafcat.convert(cut, "out.caf", overwrite=True)
        except CafcatError as error:
            assert "\n" not in str(error)  # noqa: PT017 - what else is raised fails the test
            assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@needs_fixtures
def test_a_unixfs_car_gives_its_paths_and_its_cids() -> None:
    inspection = cafcat.inspect(vector_path("car/gocar/simple-unixfs.car"))
    assert [entry.path for entry in inspection.entries][:3] == ["a/1/A.txt", "a/2/B.txt", "a/3/C.txt"]
    cids = [entry.path for entry in inspection.blocks()]
    assert inspection.about()["roots"][0] in cids
    assert len(cids) > 9


def test_the_readme_names_the_program_behind_every_vector() -> None:
    readme = (VECTORS / "README.md").read_text()
    patterns = set(re.findall(r"`((?:caf|car|chunkio|clp)/[^`]+)`", readme))
    patterns |= {pattern.replace("NAME", "*") for pattern in patterns} | {
        "clp/*.clp.json",
        "clp/*.decompressed.jsonl",
    }
    files = {str(path.relative_to(VECTORS)) for path in VECTORS.rglob("*") if path.is_file()} - {"README.md"}
    assert {name for name in files if not any(fnmatch(name, pattern) for pattern in patterns)} == set()
    assert files.isdisjoint(FIXTURES_OF_OTHERS)
