"""Tar archives as sources: their members, names, and the times at which members can be read."""

import bz2
import gzip
import io
import lzma
import os
import pty
import random
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cafcat.errors import InvalidInput, NotFound, SourceFailed
from cafcat.model import ProblemKind, SourceFile
from cafcat.sources.filter import PathFilter
from cafcat.sources.tar import file as tar_file
from cafcat.sources.tar.archive import is_tar, open_tar
from cafcat.sources.tar.file import TarFileSource
from cafcat.sources.tar.items import shown
from cafcat.sources.tar.stream import TarStreamSource
from tests.worlds.archives.tar_archives import (
    END,
    FORMATS,
    MIB,
    ONE_FILE,
    PLAIN,
    TIME,
    extended,
    from_file,
    from_stream,
    header,
    link,
    padded,
    problems,
    record,
    resummed,
    system_tar,
    taken,
    tar,
    the_end,
)
from tests.worlds.listeners import Heard
from tests.worlds.normal_user import as_normal_user

Opener = Callable[..., TarFileSource | TarStreamSource]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(params=[from_file, from_stream])
def open_archive(request: pytest.FixtureRequest) -> Opener:
    """A function that opens an archive: as a file and as a stream."""
    return request.param  # type: ignore[no-any-return]


# ---- members ----


@pytest.mark.parametrize("form", FORMATS)
def test_members_are_files_in_the_order_of_the_archive(open_archive: Opener, form: int) -> None:
    members = [("z", b"last name"), ("d/empty", b""), ("a", b"x" * 512), ("large", bytes(3 * MIB)), ("b", b"again")]
    folder = ("d", b"", {"type": tarfile.DIRTYPE})
    assert taken(open_archive(tar(folder, *members, form=form))) == members


def test_the_last_file_of_a_name_counts(open_archive: Opener) -> None:
    data = tar(
        ("f", b"old"),
        ("./g", b"old"),
        ("linked", b"kept"),
        ("h", b"old"),
        ("x", b"X"),
        ("f", b""),
        ("g", b"new"),
        link("linked", "x", tarfile.SYMTYPE),
        link("h", "x"),
        ("f", b"new"),
    )
    expected = [("linked", b"kept"), ("x", b"X"), ("g", b"new"), ("linked", "symlink"), ("h", b"X"), ("f", b"new")]
    assert taken(open_archive(data)) == expected
    assert taken(open_archive(data, filter=PathFilter(exclude=["g"]))) == [x for x in expected if x[0] != "g"]


def test_repeated_names_of_a_file_may_be_any_far_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream is read in batches, and gives a name once for each batch."""
    names = [f"{n}" for n in range(5_000)]
    data = tar(*((name, b"old") for name in names), ("0", b"new"), ("1", b"new"))
    assert taken(from_file(data)) == [*((name, b"old") for name in names[2:]), ("0", b"new"), ("1", b"new")]
    assert len(taken(from_stream(data))) == 5_002
    monkeypatch.setattr(tar_file, "_REPEATED_BYTES", 0)
    assert len(taken(from_file(data))) == 5_002


def test_repeated_names_before_damage() -> None:
    data = tar(("f", b"old"), ("f", b"new"), ("f", b"cut"), form=tarfile.USTAR_FORMAT)
    assert taken(from_file(data[:2561])) == [("f", b"new"), ("x.tar", "corrupt")]


def test_links_and_special_files_are_problems(open_archive: Opener) -> None:
    data = tar(
        link("symlink", "a", tarfile.SYMTYPE),
        ("fifo", b"", {"type": tarfile.FIFOTYPE}),
        ("tty", b"", {"type": tarfile.CHRTYPE}),
        ("disk", b"", {"type": tarfile.BLKTYPE}),
        ("a", b"A"),
    )
    kinds = {"symlink": "symlink", "fifo": "special", "tty": "special", "disk": "special"}
    source = open_archive(data)
    assert dict(taken(source)) == {**kinds, "a": b"A"}
    assert not any(problem.kind.is_failure for problem in problems(open_archive(data)))


@pytest.mark.parametrize("kind", [b"0", b"\0", b"7", b"Z", b"\xff"])
def test_types_that_a_reader_does_not_know_are_files(open_archive: Opener, kind: bytes) -> None:
    assert taken(open_archive(header("f", 3, kind) + padded(b"abc") + END)) == [("f", b"abc")]


@pytest.mark.parametrize("kind", [b"0", b"\0", b"5", b"D"])
def test_folders_of_all_times_are_no_files(open_archive: Opener, kind: bytes) -> None:
    block = bytearray(header("d", 0, kind))
    block[1:2] = b"/"
    assert taken(open_archive(resummed(bytes(block)) + ONE_FILE + END)) == [("a", b"A")]


def test_members_without_contents_may_have_a_size(open_archive: Opener) -> None:
    for kind in (b"2", b"3", b"5"):
        assert taken(open_archive(header("d", 4096, kind) + ONE_FILE + END))[-1] == ("a", b"A")
    data = ONE_FILE + header("l", 1, b"1", linkname="a") + END
    assert taken(open_archive(data)) == [("a", b"A"), ("l", b"A")]


def test_old_header_whose_name_is_truncated_at_a_slash_is_a_file(open_archive: Opener) -> None:
    """tarfile takes the member for a folder before it reads the long name."""
    name = "d" * 99 + "/file"
    short = bytearray(header("", 3, b"\0"))
    short[:100] = name[:100].encode()
    long_name = header("././@LongLink", len(name), b"L") + padded(name.encode())
    assert taken(open_archive(long_name + resummed(bytes(short)) + padded(b"abc") + END)) == [(name, b"abc")]


def test_labels_are_no_files_and_parts_of_files_are_failures(open_archive: Opener) -> None:
    data = header("label", 0, b"V") + header("rest", 3, b"M") + padded(b"end") + ONE_FILE + END
    assert taken(open_archive(data)) == [("rest", "unreadable"), ("a", b"A")]
    assert "begins in another volume" in problems(open_archive(data))[0].message


def test_incremental_archives_have_times_where_others_have_a_prefix(open_archive: Opener) -> None:
    """tarfile takes the times for a part of the name."""
    Path("d").mkdir()
    Path("d/file").write_text("data")
    system_tar("-c", "-g", "snapshot", "--format=gnu", "-f", "i.tar", "d")
    data = Path("i.tar").read_bytes()
    with tarfile.open("i.tar") as archive:
        assert archive.getnames() != ["d", "d/file"]
    assert taken(open_archive(data)) == [("d/file", b"data")]


# ---- names ----


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_are_whole(open_archive: Opener, form: int) -> None:
    longest = "/".join(["d" * 200] * 10) + "/" + "f" * 38
    data = tar((longest, b"fits"), (longest + "f", b"does not"), ("ü/日本" * 20, b"unicode"), form=form)
    assert taken(open_archive(data)) == [(longest, b"fits"), (longest + "f", "name"), ("ü/日本" * 20, b"unicode")]


def test_ustar_names_have_a_prefix(open_archive: Opener) -> None:
    name = "p" * 150 + "/" + "n" * 100
    assert taken(open_archive(tar((name, b"x"), form=tarfile.USTAR_FORMAT))) == [(name, b"x")]


def test_a_removed_beginning_is_warned_of_once(open_archive: Opener) -> None:
    heard = Heard()
    data = tar(("/abs/a", b"1"), ("/abs/b", b"2"), ("../../c", b"3"), ("x/../d", b"4"), ("./e//f", b"5"))
    source = open_archive(data, progress=heard)
    assert [path for path, _ in taken(source)] == ["abs/a", "abs/b", "c", "d", "e/f"]
    assert heard.warnings == [f"Removing leading `{beginning}' from member names" for beginning in ("/", "../../")]


def test_the_prefix_comes_first_and_is_no_name(open_archive: Opener) -> None:
    data = header("", 1, b"0") + padded(b"?") + header("./", 1, b"0") + padded(b"?") + ONE_FILE + END
    source = open_archive(data, prefix="/p/q/")
    assert taken(source) == [("p/q", "name"), ("p/q", "name"), ("p/q/a", b"A")]
    assert problems(open_archive(data, prefix="p"))[0].message == "the name is empty"


@pytest.mark.parametrize("form", FORMATS)
def test_names_that_are_not_utf8_are_refused_each(open_archive: Opener, form: int) -> None:
    names = [os.fsdecode(b"caf\xe9"), os.fsdecode(b"d\xff/" + b"n" * 90), "good"]
    data = tar(*((name, b"x") for name in names), form=form)
    assert taken(open_archive(data)) == [("caf\\xe9", "name"), ("d\\xff/" + "n" * 90, "name"), ("good", b"x")]


def test_a_name_with_a_nul_byte_is_refused_not_cut(open_archive: Opener) -> None:
    data = extended(record(b"path", b"a\0b")) + ONE_FILE + END
    assert taken(open_archive(data)) == [("a\\x00b", "name")]


def test_a_name_without_end_is_shown_in_part(open_archive: Opener) -> None:
    data = tar(("n" * 500_000, b"x"), link("l", "t" * 500_000, tarfile.SYMTYPE), link("m", "t" * 500_000))
    found = problems(open_archive(data))
    assert [problem.kind.value for problem in found] == ["name", "symlink", "unreadable"]
    assert all(len(problem.path) + len(problem.message) < 5_000 for problem in found)
    assert found[0].path == shown("n" * 500_000) == "n" * 4096 + "..."
    source = open_archive(tar(("a/" * 250_000, b"x")), filter=PathFilter([], ["b"]))
    assert [problem.kind.value for problem in problems(source)] == ["name"]


def test_patterns_see_the_names_of_the_archive(open_archive: Opener) -> None:
    names = ["top.txt", "d/a.txt", "d/a.log", "cache/keep", "/abs/b.txt"]
    data = tar(*((name, b"x") for name in names), link("d/s.txt", "a.txt", tarfile.SYMTYPE))

    def paths(include: list[str], exclude: list[str]) -> list[str]:
        source = open_archive(data, prefix="p", filter=PathFilter(include, exclude))
        return [path for path, _ in taken(source)]

    assert paths(["*.txt"], []) == ["p/top.txt", "p/d/a.txt", "p/abs/b.txt", "p/d/s.txt"]
    assert paths(["/d/"], ["*.log"]) == ["p/d/a.txt", "p/d/s.txt"]
    assert paths([], ["/abs", "*.txt", "cache/", "!cache/keep"]) == ["p/d/a.log"]


# ---- times ----


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"1700000000.123456789", 1_700_000_000_123_456_789),
        (b"1700000000.1", 1_700_000_000_100_000_000),
        (b"1700000000.9999999999999", 1_700_000_000_999_999_999),
        (b"0", 0),
        (b"-1.5", -1_500_000_000),
        (b"-0.0000000001", -1),
        (b"1e-05", 10_000),
        (b"9" * 19 + b".000000001", int("9" * 19) * 10**9 + 1),
        (b"0." + b"9" * 500_000, 999_999_999),
        (b"-1e-999999", -1),
        (b"0e-999999", 0),
        *(
            (bad, TIME * 10**9)
            for bad in (b"", b"soon", b"nan", b"inf", b"\xff", b"1" * 21, b"1e999999", b"1e" + b"9" * 99)
        ),
    ],
)
def test_times_are_exact(open_archive: Opener, text: bytes, expected: int) -> None:
    (item,) = open_archive(extended(record(b"mtime", text)) + ONE_FILE + END).files()
    assert isinstance(item, SourceFile)
    assert item.modified_ns == expected


def test_a_time_without_fraction_comes_from_the_header(open_archive: Opener) -> None:
    for time in (0, TIME, -1, 2**40):
        (item,) = open_archive(tar(("f", b"", {"mtime": time}), form=tarfile.GNU_FORMAT)).files()
        assert isinstance(item, SourceFile)
        assert item.modified_ns == time * 10**9


def test_records_of_one_member_override_global_records(open_archive: Opener) -> None:
    one = extended(record(b"mtime", b"7") + record(b"path", b"b"))
    last = extended(record(b"path", b"c")) + ONE_FILE
    data = extended(record(b"mtime", b"5") + record(b"comment", b"c"), b"g") + ONE_FILE + one + ONE_FILE + last
    times = [item.modified_ns for item in open_archive(data + END).files() if isinstance(item, SourceFile)]
    assert times == [5 * 10**9, 7 * 10**9, 5 * 10**9]


def test_an_archive_of_records_only_is_empty(open_archive: Opener) -> None:
    assert taken(open_archive(extended(record(b"comment", b"of git archive"), b"g") + END)) == []


# ---- hard links ----


def test_hard_link_is_a_file_with_the_contents_of_its_latest_target(open_archive: Opener) -> None:
    data = tar(
        ("f", b"old"),
        ("f", b"new"),
        link("to f", "f"),
        link("to the link", "./to f"),
        link("symlink", "f", tarfile.SYMTYPE),
        link("to symlink", "symlink"),
        ("t" * 300, b"long"),
        link("to long", "t" * 300),
        ("f", b"newest"),
    )
    expected = [("to f", b"new"), ("to the link", b"new"), ("symlink", "symlink")]
    expected += [("to symlink", "symlink"), ("t" * 300, b"long"), ("to long", b"long"), ("f", b"newest")]  # type: ignore[list-item]
    assert taken(open_archive(data)) == expected


def test_a_hard_link_has_the_time_of_its_target() -> None:
    first, second = from_file(tar(("f", b"", {"mtime": 5}), link("l", "f"))).files()
    assert isinstance(first, SourceFile)
    assert isinstance(second, SourceFile)
    assert first.modified_ns == second.modified_ns == 5 * 10**9


@pytest.mark.parametrize("target", ["later", "nowhere", "folder", "link"])
def test_a_hard_link_to_nothing_before_it_is_a_failure(target: str) -> None:
    folder = ("folder", b"", {"type": tarfile.DIRTYPE})
    source = from_file(tar(("f", b"F"), folder, link("link", target), ("later", b"L"), link("good", "f")))
    assert taken(source) == [("f", b"F"), ("link", "unreadable"), ("later", b"L"), ("good", b"F")]
    assert f"hard link to '{target}'" in problems(source)[0].message


def test_hard_links_in_a_file_reach_back_any_far(monkeypatch: pytest.MonkeyPatch) -> None:
    members = [(f"f{n}", b"%d" % n) for n in range(300)]
    links = [link(f"l{n}", f"f{n}") for n in range(0, 300, 7)]
    wanted = members + [(f"l{n}", b"%d" % n) for n in range(0, 300, 7)]
    assert taken(from_file(tar(*members, *links))) == wanted
    monkeypatch.setattr(tar_file, "_LINK_BYTES", 1_000)
    found = taken(from_file(tar(*members, *links)))
    assert found[:302] == wanted[:302]
    assert {content for _, content in found[303:]} == {"unreadable"}
    assert "too many hard links" in problems(from_file(tar(*members, *links)))[-1].message


def test_hard_links_before_damage_are_files() -> None:
    data = tar(("f", b"F"), link("l", "f"), ("g", b"G"))
    assert taken(from_file(data[:1600])) == [("f", b"F"), ("l", b"F"), ("x.tar", "corrupt")]


def test_a_filtered_target_of_a_hard_link_is_in_the_file_but_not_in_the_stream() -> None:
    data = tar(("out/f", b"F"), link("in/l", "out/f"))
    only = PathFilter(["/in"])
    assert taken(from_file(data, filter=only)) == [("in/l", b"F")]
    assert taken(from_stream(data, filter=only)) == [("in/l", "unreadable")]


def test_hard_link_to_a_refused_name_is_a_file_if_its_contents_are_available() -> None:
    data = tar(("n" * 3000, b"x"), link("l", "n" * 3000))
    assert taken(from_file(data)) == [("n" * 3000, "name"), ("l", b"x")]
    assert taken(from_stream(data)) == [("n" * 3000, "name"), ("l", "unreadable")]


def test_a_hard_link_whose_target_has_gone_by_is_a_failure() -> None:
    source = from_stream(tar(("f", b"F"), ("large", bytes(MIB + 1)), link("l", "f"), link("m", "large")))
    found = problems(source)
    assert [(problem.path, problem.kind.value) for problem in found] == [("l", "unreadable"), ("m", "unreadable")]
    assert found[0].message.endswith("read before in the stream: ingest the archive from an uncompressed file")


def test_tree_packed_by_gnu_tar_is_read_back(open_archive: Opener) -> None:
    tree = {
        "a": b"A",
        "sub/b" + "n" * 150: b"B" * 5000,
        "sub/ü": b"",
        "sub/odd \n name": b"\n",
        "large": bytes(2 * MIB),
    }
    for path, content in tree.items():
        Path("t", path).parent.mkdir(parents=True, exist_ok=True)
        Path("t", path).write_bytes(content)
    os.link("t/a", "t/sub/z hard link")
    os.utime("t/a", ns=(1, 1_234_567_890_987_654_321))
    for form in ("gnu", "posix", "ustar", "v7"):
        if form == "ustar":  # here and in v7 such a name does not fit
            Path("t", "sub", "b" + "n" * 150).unlink()
            del tree["sub/b" + "n" * 150]
        system_tar("-c", f"--format={form}", "--sort=name", "-f", f"{form}.tar", "t")
        source = open_archive(Path(f"{form}.tar").read_bytes())
        found = dict(taken(source))
        # In a stream, the large file between both ends the batch.
        linked = b"A" if isinstance(source, TarFileSource) else "unreadable"
        assert found.pop("t/sub/z hard link") == linked
        assert found == {f"t/{path}": content for path, content in tree.items()}


# ---- sparse members ----

SPARSE = [["gnu"], ["posix", "0.0"], ["posix", "0.1"], ["posix", "1.0"]]


@pytest.mark.parametrize("form", SPARSE)
def test_sparse_members_have_their_holes(open_archive: Opener, form: list[str]) -> None:
    pieces = {0: b"begin", 300_000: b"x" * 5000, 3_000_000: b"y", 9_000_000: b"end"}
    with open("many", "wb") as many:
        for n in range(60):  # more than fit into one header block
            many.seek(n * 40_960)
            many.write(b"%d" % n)
    with open("sparse", "wb") as sparse:
        for position, piece in pieces.items():
            sparse.seek(position)
            sparse.write(piece)
    with open("hole", "wb") as hole:
        hole.truncate(1_000_000)
    version = [f"--sparse-version={form[1]}"] if len(form) > 1 else []
    names = ["sparse", "hole", "many"]
    system_tar("-c", "-S", f"--format={form[0]}", *version, "-f", "s.tar", *names)
    data = Path("s.tar").read_bytes()
    assert len(data) < MIB, "not sparse"
    assert taken(open_archive(data + b"")) == [(name, Path(name).read_bytes()) for name in names]
    with tarfile.open("s.tar") as archive:
        for name in names:
            reader = archive.extractfile(name)
            assert reader is not None
            assert reader.read() == Path(name).read_bytes()


def test_a_sparse_member_can_be_linked_to() -> None:
    records = record(b"GNU.sparse.size", b"10") + record(b"GNU.sparse.map", b"8,2")
    data = extended(records) + header("s", 2, b"0") + padded(b"ab") + header("l", 0, b"1", linkname="s") + END
    assert taken(from_file(data)) == [("s", bytes(8) + b"ab"), ("l", bytes(8) + b"ab")]
    assert taken(from_stream(data)) == [("s", bytes(8) + b"ab"), ("l", bytes(8) + b"ab")]


def test_only_the_last_extended_header_has_the_map() -> None:
    numbers = record(b"GNU.sparse.offset", b"8") + record(b"GNU.sparse.numbytes", b"2")
    data = extended(numbers) + extended(numbers + record(b"GNU.sparse.size", b"10"))
    assert taken(from_stream(data + header("s", 2, b"0") + padded(b"ab") + END)) == [("s", bytes(8) + b"ab")]


def sparse_member(size: bytes, numbers: bytes, stored: bytes, version: bytes = b"") -> bytes:
    records = record(b"GNU.sparse.realsize", size) + (record(b"GNU.sparse.map", numbers) if numbers else b"")
    if version:
        records += record(b"GNU.sparse.major", version) + record(b"GNU.sparse.minor", b"0")
    return extended(records) + header("s", len(stored), b"0") + padded(stored) + END


@pytest.mark.parametrize(
    "data",
    [
        sparse_member(b"10", b"8,3", b"abc"),
        sparse_member(b"10", b"0,2,1,1", b"abc"),
        sparse_member(b"10", b"4,1,0,1", b"ab"),
        sparse_member(b"10", b"8,2,9", b"ab"),
        sparse_member(b"10", b"8,1", b"ab"),
        sparse_member(b"10", b"8,-2", b"ab"),
        sparse_member(b"", b"8,2", b"ab"),
        sparse_member(b"10", b"8,2", b"ab", b"2"),
        sparse_member(b"10", b"", b"", b"1"),
        sparse_member(b"10", b"", b"x\n", b"1"),
        sparse_member(b"10", b"", b"2\n0\n", b"1"),
        sparse_member(b"10", b"", b"1" * 5000, b"1"),
        sparse_member(b"10", b"", padded(b"300000\n" + b"0\n" * 600_000), b"1"),
        extended(record(b"GNU.sparse.size", b"9") + record(b"GNU.sparse.offset", b"1")) + ONE_FILE + END,
        resummed(header("s", 1, b"S")[:386] + b"9" * 24 + bytes(102)) + padded(b"A") + END,
        resummed(header("s", 1, b"S")[:386] + bytes(96) + b"\1" + bytes(29))
        + (b"1" * 504 + b"\1" + bytes(7)) * 20_000,
    ],
)
def test_a_bad_map_of_a_sparse_member_is_damage(open_archive: Opener, data: bytes) -> None:
    """Maps that are too long, overlapping, descending, odd, incomplete, not numeric, unknown or endless."""
    assert "byte 0" in the_end(open_archive(data))


def test_a_huge_hole_costs_no_memory(open_archive: Opener) -> None:
    source = open_archive(sparse_member(b"9000000000000000000", b"0,2", b"ab"))
    items = source.files()
    item = next(items)
    assert isinstance(item, SourceFile)
    with source.open(item) as opened:
        blocks = opened.blocks()
        first = [next(blocks) for _ in range(50)]
    assert first[0] == b"ab"
    assert {len(block) for block in first[1:]} == {MIB}


# ---- streams ----


def test_batches_are_bounded() -> None:
    many = tar(*((f"{n}", b"") for n in range(5_001)))
    assert [len(batch) for batch in from_stream(many).batches()] == [5_000, 1]
    heavy = tar(*((f"{n}", bytes(MIB)) for n in range(70)))
    assert [len(batch) for batch in from_stream(heavy).batches()] == [64, 6]
    large = tar(("a", b""), ("large", bytes(MIB + 1)), ("b", b""), ("c", bytes(MIB)))
    assert [[item.path for item in batch] for batch in from_stream(large).batches()] == [["a", "large"], ["b", "c"]]
    assert list(from_stream(bytes(1024)).batches()) == []
    links = tar(*(link(f"{n}", "x", tarfile.SYMTYPE) for n in range(5_001)))
    assert [len(batch) for batch in from_stream(links).batches()] == [5_000, 1]


def test_files_of_a_batch_can_be_opened_in_any_order_and_again() -> None:
    source = from_stream(tar(("a", b"A"), ("b", b"B"), ("large", bytes(2 * MIB)), ("c", b"C")))
    batches = source.batches()
    a, b, large = next(batches)
    assert isinstance(a, SourceFile)
    assert isinstance(b, SourceFile)
    assert isinstance(large, SourceFile)
    for file, content in ((b, b"B"), (a, b"A"), (b, b"B")):
        with source.open(file) as opened:
            assert list(opened.blocks()) == [content]
    with source.open(large):
        pass  # listed, and not read
    with source.open(large) as opened:
        assert opened.read() == bytes(2 * MIB)
    with source.open(large) as opened, pytest.raises(SourceFailed, match="cannot be read any more") as caught:
        opened.read()
    assert caught.value.path == "large"
    assert [item.path for item in next(batches)] == ["c"]
    with pytest.raises(SourceFailed, match="cannot be read any more"):
        source.open(a)


def test_a_large_file_that_is_read_in_part_does_not_disturb_the_next() -> None:
    source = from_stream(PLAIN)
    batches = source.batches()
    large = next(batches)[-1]
    assert isinstance(large, SourceFile)
    with source.open(large) as opened:
        blocks = opened.blocks()
        assert len(next(blocks)) == MIB
    (b,) = next(batches)
    assert isinstance(b, SourceFile)
    with source.open(b) as opened:
        assert opened.read() == b"B" * 1000
    with pytest.raises(SourceFailed, match="cannot be read any more"):
        next(blocks)
    assert list(batches) == []


def test_files_cannot_be_opened_after_the_last_batch() -> None:
    source = from_stream(tar(("a", b"A")))
    ((file,),) = source.batches()
    assert isinstance(file, SourceFile)
    with pytest.raises(SourceFailed, match="cannot be read any more"):
        source.open(file)


def test_a_stream_is_read_once() -> None:
    source = from_stream(ONE_FILE + END)
    assert taken(source) == [("a", b"A")]
    (problem,) = problems(source)
    assert (problem.path, problem.kind.value) == ("stream", "unreadable")
    assert "only once" in problem.message


def test_a_stream_that_fails_is_a_problem() -> None:
    class Broken(io.RawIOBase):
        def read(self, _: int = -1) -> bytes:
            raise OSError(5, "Input/output error")

    (problem,) = problems(TarStreamSource(Broken()))  # type: ignore[arg-type]
    assert (problem.kind.value, problem.message) == ("unreadable", "the archive cannot be read: Input/output error")


SCRIPT = """
import sys
from cafcat.sources.tar.archive import open_tar
source = open_tar("-")
found = [source.name]
for file in source.files():
    with source.open(file) as opened:
        found.append(file.path + "=" + opened.read().decode())
print(*found, sep="|")
"""


def test_standard_input_is_an_archive() -> None:
    for data in (tar(("a", b"A"), ("b", b"B")), gzip.compress(tar(("a", b"A"), ("b", b"B")))):
        run = subprocess.run([sys.executable, "-c", SCRIPT], input=data, capture_output=True, check=True)
        assert run.stdout.decode() == "standard input|a=A|b=B\n"


def test_the_writer_of_a_pipe_can_finish() -> None:
    """The bytes after the end marker are read, too. Otherwise the writer would be killed by SIGPIPE."""
    data = tar(("a", b"A")) + bytes(5 * MIB)
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdin is not None
        assert reader.stdin.write(data) == len(data)
        reader.stdin.close()
        assert reader.wait() == 0


def test_standard_input_has_to_be_a_pipe_or_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    controller, terminal = pty.openpty()
    with open(terminal) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        with pytest.raises(InvalidInput, match="is a terminal") as caught:
            open_tar("-")
    assert caught.value.hint == "pipe an archive into it"
    os.close(controller)
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InvalidInput, match="closed"):
        open_tar("-")


# ---- archives that change ----


def test_an_archive_that_changes_while_it_is_listed_is_a_failure() -> None:
    source = from_file(tar(("a", b"A"), ("b", b"B")))
    items = source.files()
    assert next(items).path == "a"
    with open("x.tar", "ab") as archive:
        archive.write(bytes(512))
    assert [(item.path, getattr(item, "kind", None)) for item in items] == [("b", None), ("x.tar", "changed")]
    assert [(item.path, getattr(item, "kind", None)) for item in source.files()] == [("x.tar", "changed")]


def test_a_cut_while_it_is_listed_is_a_change_not_damage() -> None:
    source = from_file(tar(*((f"{n}", bytes(100_000)) for n in range(5))))
    items = source.files()
    next(items)
    os.truncate("x.tar", 200_000)
    assert list(items)[-1][:2] == ("x.tar", ProblemKind.CHANGED)


@pytest.mark.parametrize("size_bytes", [10, 3 * MIB])
@pytest.mark.parametrize("by_blocks", [False, True])
def test_an_archive_that_changes_while_a_member_is_read_fails_it(size_bytes: int, by_blocks: bool) -> None:
    source = from_file(tar(("f", bytes(size_bytes))))
    (file,) = source.files()
    assert isinstance(file, SourceFile)
    with source.open(file) as opened:
        os.truncate("x.tar", 515)
        with pytest.raises(SourceFailed, match=r"has changed while it was read \(10,240|3,.* 515 now") as caught:
            list(opened.blocks()) if by_blocks else opened.read()
    assert (caught.value.problem, caught.value.path) == ("changed", "f")


def test_a_member_that_is_whole_fails_too_if_its_archive_changed() -> None:
    for time, source in enumerate((from_file(PLAIN), TarStreamSource("x.tar"))):
        items = source.files()
        for item in items:
            assert isinstance(item, SourceFile)
            if item.path == "large":
                break
        with source.open(item) as opened:
            os.utime("x.tar", ns=(0, time))
            with pytest.raises(SourceFailed, match="changed") as caught:
                opened.read()
        assert (caught.value.problem, caught.value.path) == ("changed", "large")
        assert [(item.path, getattr(item, "kind", None)) for item in items] == [("b", None), ("x.tar", "changed")]


def test_an_archive_that_was_replaced_or_went_fails_its_members() -> None:
    source = from_file(ONE_FILE + END)
    (file,) = source.files()
    assert isinstance(file, SourceFile)
    Path("y.tar").write_bytes(ONE_FILE + END)
    os.utime("y.tar", ns=(1, os.stat("x.tar").st_mtime_ns))
    os.link("x.tar", "z.tar")  # not a change
    with source.open(file) as opened:
        assert opened.read() == b"A"
    os.rename("y.tar", "x.tar")
    with pytest.raises(SourceFailed, match="changed"):
        source.open(file)
    Path("x.tar").unlink()
    with pytest.raises(SourceFailed, match="No such file") as caught:
        source.open(file)
    assert (caught.value.problem, caught.value.path) == ("vanished", "a")
    assert [(item.path, getattr(item, "kind", None)) for item in source.files()] == [("x.tar", "vanished")]


def test_source_that_cannot_be_opened_is_refused_at_once() -> None:
    with pytest.raises(NotFound):
        TarFileSource("nothing.tar")
    with pytest.raises(SourceFailed):
        TarFileSource("n\0thing")
    Path("x.tar").write_bytes(ONE_FILE + END)
    os.chmod("x.tar", 0)
    Path.cwd().chmod(0o755)
    with as_normal_user(), pytest.raises(SourceFailed, match="Permission denied"):
        TarFileSource("x.tar")
    assert [problem.kind.value for problem in problems(TarStreamSource("nothing.tar.gz"))] == ["vanished"]


# ---- detection of archives ----


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("x", ONE_FILE + END, "tar"),
        ("x.txt", ONE_FILE, "tar"),
        ("x", ONE_FILE[:512], "tar"),
        ("x", tar(("ü", b"x")), "tar"),
        ("x", resummed(header("a", 0, b"0")[:148] + bytes(364)), "tar"),
        ("x.tar", bytes(10240), "tar"),
        ("X.TAR", bytes(1024), "tar"),
        ("x", bytes(10240), None),
        ("x.tar", bytes(1023), None),
        ("x.tar", bytes(512) + b"x" * 512, None),
        ("x.tar", b"", None),
        ("x.tar", b"text" * 1000, None),
        ("x.tar", ONE_FILE[:511], None),
        ("x.tar", b"b" + ONE_FILE[1:], None),
        ("x.tar", ONE_FILE[:108] + b"not oct\0" + ONE_FILE[116:], None),
        ("x", lambda: gzip.compress(PLAIN, mtime=0), "stream"),
        ("x", lambda: bz2.compress(PLAIN), "stream"),
        ("x", lambda: bz2.compress(tar(("r", random.Random(2).randbytes(2 * MIB)))), "stream"),
        ("x", lambda: lzma.compress(PLAIN), "stream"),
        ("x.tar.gz", gzip.compress(b"text" * 1000, mtime=0), None),
        ("x.tar.gz", gzip.compress(b"", mtime=0), None),
        ("x.tar.gz", gzip.compress(bytes(10240), mtime=0), "stream"),
        ("x.tgz", gzip.compress(bytes(10240), mtime=0), "stream"),
        ("x.gz", gzip.compress(bytes(10240), mtime=0), None),
        ("x.tar.gz", b"\x1f\x8b\x08" + bytes(1000), None),
        ("x.tar.bz2", b"BZh91AY&SY" + bytes(3 * MIB), None),
        ("x.tar.xz", b"\xfd7zXZ\0" + bytes(1000), None),
    ],
)
def test_archives_are_detected_by_their_contents(
    name: str, data: bytes | Callable[[], bytes], expected: str | None
) -> None:
    Path(name).write_bytes(data() if callable(data) else data)
    assert is_tar(name) == expected
    source = open_tar(name)
    assert type(source) is {"tar": TarFileSource, "stream": TarStreamSource, None: type(None)}[expected]


def test_unreadable_and_special_files_are_no_archives() -> None:
    os.mkfifo("fifo")
    Path("locked").write_bytes(ONE_FILE)
    os.chmod("locked", 0)
    Path("link").symlink_to("locked")
    for path in (".", "fifo", "nothing", "/dev/null", "a\0b", "", "n" * 300):
        assert is_tar(path) is None
        assert open_tar(path) is None
    both_ends = os.open("fifo", os.O_RDWR | os.O_NONBLOCK)
    os.write(both_ends, ONE_FILE)
    assert is_tar("fifo") is None
    assert os.read(both_ends, 10_000) == ONE_FILE
    os.close(both_ends)
    with as_normal_user():
        assert is_tar("locked") is None
    os.chmod("locked", 0o600)
    assert is_tar("link") == "tar"


def test_asking_an_ordinary_file_loads_nothing_that_reads_archives() -> None:
    Path("ordinary").write_bytes(b"text" * 1000)
    script = (
        "import sys; from cafcat.sources.tar.archive import is_tar; assert is_tar('ordinary') is None; "
        "print([name for name in ('tarfile', 'lzma', 'bz2', 'decimal') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    assert run.stdout == "[]\n"
