"""The file system of fsspec: finding, listing, reading and writing of a catalog's and a snapshot's files."""

import asyncio
import io
import multiprocessing
import os
import pickle
import pkgutil
import random
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.asyn import AsyncFileSystem, sync

import cafcat
from cafcat.catalog.files.lookup import Lookup
from cafcat.errors import CatalogUnavailable, Conflict, Corrupt, InvalidInput, NotFound
from cafcat.filesystem import CafcatFileSystem, lookups
from cafcat.reading.replicas import IF_ORIGINAL
from cafcat.snapshots import lookup as snapshot_lookup
from cafcat.stores.local.store import LocalStore
from tests.worlds.archives.damage import flip
from tests.worlds.catalog_world import MODIFIED, Opener, commit, live, sql
from tests.worlds.places import Bucket, Folder

fsspec.register_implementation("cafcat", CafcatFileSystem, clobber=True)  # as the entry point of the package does

LARGE = random.Random(7).randbytes(3_000_000)
FILES = {
    "top": b"top",
    "data/a.csv": b"x,y\n1,2\n",
    "data/b.csv": b"x,y\n3,4\n",
    "data/deep/er/c.csv": b"x,y\n5,6\n",
    "data/deep/d": b"",
    "data0": b"beside",
    "data/[odd]*.txt": b"odd",
    "both": b"a file",
    "both/inside": b"and a folder",
    "large": LARGE,
    "ünïcode/ß€𝄞": b"letters",
}


@pytest.fixture(autouse=True)
def _own_instances() -> Iterator[None]:
    """fsspec keeps its file systems for ever, and with them their connections."""
    yield
    for fs in CafcatFileSystem._cache.values():
        fs._packed.close()
    CafcatFileSystem.clear_instance_cache()


@pytest.fixture
def options(local: cafcat.Repository) -> dict[str, Any]:
    """Storage options of the catalog with FILES."""
    commit(local, FILES)
    settings = local.settings
    return {"home": str(settings.home), "database_url": settings.database_url, "store": settings.store}


@pytest.fixture
def snapshot_options(local: cafcat.Repository, options: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """Storage options of a snapshot of the catalog, which cannot reach the catalog."""
    local.snapshot(tmp_path / "files.cafs")
    nowhere = {"home": str(tmp_path / "elsewhere"), "database_url": "postgresql:///nowhere?host=/nonexistent"}
    return {"snapshot": str(tmp_path / "files.cafs"), **nowhere}


@pytest.fixture
def catalog_fs(options: dict[str, Any]) -> CafcatFileSystem:
    return fsspec.filesystem("cafcat", **options)


@pytest.fixture(params=["catalog", "snapshot"])
def fs(request: pytest.FixtureRequest) -> CafcatFileSystem:
    name = "options" if request.param == "catalog" else "snapshot_options"
    return fsspec.filesystem("cafcat", **request.getfixturevalue(name))


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Listings take several pages."""
    monkeypatch.setattr(Lookup.folder_page, "__kwdefaults__", {"after": None, "limit": 2})
    monkeypatch.setattr("cafcat.catalog.files.lookup.PAGE_ROWS", 2)
    monkeypatch.setattr(Lookup.pages, "__defaults__", (None, 2))
    for page in (snapshot_lookup.SnapshotFiles.folder_page, snapshot_lookup.SnapshotFiles.location_page):
        monkeypatch.setattr(page, "__kwdefaults__", {"after": None, "limit": 2})
    monkeypatch.setattr(snapshot_lookup, "PAGE_ROWS", 2)


def tree(files: dict[str, bytes], folder: Path) -> Path:
    """Write files to disk, except those whose name is that of a folder, too."""
    for path, content in files.items():
        if path != "both":
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
    return folder


def from_pickle(pickled: bytes) -> Any:
    return pickle.loads(pickled)  # noqa: S301 - our own


# Finding and listing


def test_info_of_files_and_folders(fs: CafcatFileSystem) -> None:
    from google_crc32c import value as crc32c

    for path, content in FILES.items():
        info = fs.info(f"cafcat://{path}")
        assert info == {
            "name": path,
            "size": len(content),
            "type": "file",
            "mtime": MODIFIED / 1e9,
            "crc32c": crc32c(content),
        }
        assert fs.size(path) == len(content)
        assert fs.modified(path) == datetime.fromtimestamp(MODIFIED / 1e9, UTC)
        assert fs.isfile(path)
        assert not fs.isdir(path)
    for folder in ("data", "data/", "/data/deep", "ünïcode", "", "/", "cafcat://"):
        assert fs.info(folder)["type"] == "directory", folder
        assert fs.isdir(folder)
        assert not fs.isfile(folder)
    assert fs.info("/data/deep/")["name"] == "data/deep"
    assert fs.sizes(["top", "data0", "large"]) == [3, 6, len(LARGE)]


def test_missing_paths(fs: CafcatFileSystem, tmp_path: Path) -> None:
    for path in ("nothing", "dat", "data/a", "data/a.csv/x", "a\0b", "\udcff", "../top", "top//x"):
        check_missing(fs, path, tmp_path)


def check_missing(fs: CafcatFileSystem, path: str, tmp_path: Path) -> None:
    assert not fs.exists(path)
    assert not fs.isfile(path)
    assert not fs.isdir(path)
    assert fs.find(path) == fs.glob(path) == []
    calls: list[Callable[[], object]] = [
        lambda: fs.info(path),
        lambda: fs.ls(path),
        lambda: fs.open(path),
        lambda: fs.cat_file(path),
        lambda: fs.cat_file(path, 1, 2),
        lambda: fs.cat(path),
        lambda: fs.cat([path, "top"]),
        lambda: fs.get_file(path, tmp_path / "out"),
        lambda: fs.checksum(path),
        lambda: fs.modified(path),
        lambda: fs.cat_ranges([path], [0], [1], on_error="raise"),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(FileNotFoundError):
            pytest.fail(f"{number}: {call()!r}")
    assert fs.cat([path, "top"], on_error="omit") == {"top": b"top"}
    assert isinstance(fs.cat([path, "top"], on_error="return")[path], FileNotFoundError)


def test_a_folder_is_not_read_as_a_file(fs: CafcatFileSystem) -> None:
    for path in ("data", "data/deep/", ""):
        for call in (fs.open, fs.cat_file, fs.checksum, lambda path: fs.cat_file(path, -5, -2)):
            with pytest.raises(IsADirectoryError):
                call(path)


def test_listing(fs: CafcatFileSystem, small_pages: None) -> None:
    assert fs.ls("", detail=False) == ["both", "both", "data", "data0", "large", "top", "ünïcode"]
    found = ["data/[odd]*.txt", "data/a.csv", "data/b.csv", "data/deep"]
    assert fs.ls("data", detail=False) == fs.ls("/data/", detail=False) == found
    for info in fs.ls("data"):
        assert info == fs.info(info["name"])
    assert fs.ls("both", detail=False) == ["both/inside"]
    assert fs.ls("top") == [fs.info("top")]


def test_find_and_du(fs: CafcatFileSystem, small_pages: None) -> None:
    assert fs.find("") == sorted(FILES)
    inside = sorted(path for path in FILES if path.startswith("data/"))
    assert fs.find("data") == inside
    assert fs.find("data", detail=True) == {path: fs.info(path) for path in inside}
    assert fs.find("data", withdirs=True) == sorted([*inside, "data", "data/deep", "data/deep/er"])
    assert fs.find("data/deep", withdirs=True)[0] == "data/deep"
    assert fs.find("data", maxdepth=1) == ["data/[odd]*.txt", "data/a.csv", "data/b.csv"]
    assert fs.find("data", maxdepth=2, withdirs=True) == sorted([*inside[:-2], "data", *inside[-2:-1], *DEEP])
    assert fs.find("top") == ["top"]
    assert fs.find("both") == ["both", "both/inside"]
    assert fs.find("top", maxdepth=1) == ["top"]
    assert fs.du("data") == sum(len(FILES[path]) for path in inside)
    assert fs.du("", total=False) == {path: len(content) for path, content in FILES.items()}
    with pytest.raises(ValueError, match="maxdepth"):
        fs.find("data", maxdepth=0)


DEEP = ["data/deep", "data/deep/er"]


def test_find_is_that_of_a_folder_on_disk(fs: CafcatFileSystem, tmp_path: Path) -> None:
    base = str(tree(FILES, tmp_path / "tree"))
    for path in ("", "data", "data/deep", "nothing"):
        for depth in (1, 2, 3, None):
            for with_folders in (False, True):
                expected = fsspec.filesystem("file").find(f"{base}/{path}".rstrip("/"), depth, with_folders)
                names = {name[len(base) + 1 :] for name in expected} - {""}
                found = set(fs.find(path, depth, with_folders))
                assert found - {"both", "both/inside"} == names - {"both", "both/inside"}, (path, depth)


GLOBS = ["*", "data/*.csv", "**/*.csv", "data/**", "data/*/", "*a*/*", "data/[[]odd]*", "ü*/*", "*/*/*/c.csv", "x*"]


def test_glob_with_wildcards_in_folders_is_that_of_fsspec(fs: CafcatFileSystem) -> None:
    patterns = [
        "*/*",
        "*/*.csv",
        "d*/deep",
        "*/deep/*",
        "*/*/er",
        "*/*/*/c.csv",
        "*/*/",
        "b*/inside",
        "*/none",
        "[a-d]*/?.csv",
        "data/*/er/*",
        "*a/d*p/",
        "*/[[]odd]*",
        "**/er/*.csv",
        "?*/*/er/c.csv",
        "none/*/x",
        "*/",
        "*/deep/",
    ]
    for pattern in patterns:
        for options in ({}, {"detail": True}, {"withdirs": False}, {"maxdepth": 2}):
            plain = AsyncFileSystem._glob(fs, pattern, **options)
            assert fs.glob(pattern, **options) == sync(fs.loop, lambda plain=plain: plain), (pattern, options)


def test_glob_lists_matching_folders_only(catalog_fs: CafcatFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[str] = []
    folder = Lookup.folder
    monkeypatch.setattr(Lookup, "folder", lambda self, name: [listed.append(name), *folder(self, name)][1:])
    monkeypatch.setattr(Lookup, "pages", None)
    assert catalog_fs.glob("d*/deep/d") == ["data/deep/d"]
    assert listed == [""]


def test_glob_is_that_of_a_folder_on_disk(fs: CafcatFileSystem, tmp_path: Path) -> None:
    base = str(tree(FILES, tmp_path / "tree"))
    for pattern in [*GLOBS, "**", "data/?.csv", "data/deep", "top", "data/**/*.csv"]:
        expected = [name[len(base) + 1 :] for name in fsspec.filesystem("file").glob(f"{base}/{pattern}")]
        assert fs.glob(pattern) == sorted(filter(None, expected)), pattern


def test_walk(fs: CafcatFileSystem) -> None:
    found = list(fs.walk("data"))
    assert found == [
        ("data", ["deep"], ["[odd]*.txt", "a.csv", "b.csv"]),
        ("data/deep", ["er"], ["d"]),
        ("data/deep/er", [], ["c.csv"]),
    ]


def test_listings_are_cached_only_on_request(local: cafcat.Repository, options: dict[str, Any]) -> None:
    fs = fsspec.filesystem("cafcat", **options)
    caching = fsspec.filesystem("cafcat", **options, use_listings_cache=True)
    for system in (fs, caching):
        assert len(system.ls("data")) == 4
    commit(local, {"data/new": b""})
    assert len(fs.ls("data")) == 5
    assert len(caching.ls("data")) == 4
    assert len(caching.ls("data", refresh=True)) == 5
    commit(local, {"data/newer": b""})
    caching.invalidate_cache()
    assert len(caching.ls("data")) == 6
    caching.pipe("data/newest", b"")
    assert len(caching.ls("data")) == 7


def test_checksum_changes_with_the_content_only(local: cafcat.Repository, catalog_fs: CafcatFileSystem) -> None:
    first, key = catalog_fs.checksum("top"), catalog_fs.ukey("top")
    commit(local, {"top": b"top"})  # in another chunk
    assert (catalog_fs.checksum("top"), catalog_fs.ukey("top")) == (first, key)
    commit(local, {"top": b"pot"})
    assert catalog_fs.checksum("top") != first
    assert catalog_fs.ukey("top") != key


def test_a_file_without_a_time(local: cafcat.Repository, catalog_fs: CafcatFileSystem) -> None:
    commit(local, {"timeless": b""}, modified_ns=None)
    assert catalog_fs.info("timeless")["mtime"] is None
    with pytest.raises(NotImplementedError, match="no modification time of timeless"):
        catalog_fs.modified("timeless")


def test_an_outage_is_no_empty_folder(local: cafcat.Repository, tmp_path: Path) -> None:
    """fsspec takes an OSError in a listing for an empty folder, and any error of `_isfile` for no file."""
    url = "postgresql:///nowhere?host=/nonexistent"
    fs = fsspec.filesystem("cafcat", home=str(tmp_path), database_url=url)
    for call in (fs.ls, fs.find, fs.isfile, fs.isdir, fs.exists, fs.info, fs.cat, fs.open, fs.du):
        with pytest.raises(CatalogUnavailable):
            call("data")
    for call in (fs.walk, fs.glob):
        with pytest.raises(CatalogUnavailable):
            list(call("data/*"))


# Reading


def test_cat(fs: CafcatFileSystem) -> None:
    assert fs.cat("top") == fs.cat_file("top") == b"top"
    assert fs.cat(list(FILES)[:5]) == {path: FILES[path] for path in list(FILES)[:5]}
    assert fs.cat("data/*.csv") == {path: FILES[path] for path in ("data/a.csv", "data/b.csv")}
    inside = {path: content for path, content in FILES.items() if path.startswith("data/")}
    assert fs.cat("data", recursive=True) == inside
    assert fs.cat("cafcat://large") == LARGE
    with pytest.raises(IsADirectoryError):
        fs.cat(["top", "data"])


def test_cat_of_many_files_takes_one_query_and_few_reads(
    local: cafcat.Repository, catalog_fs: CafcatFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = {f"many/{number:04}": b"%d" % number for number in range(900)}
    commit(local, many)
    queries: list[object] = []
    reads: list[object] = []
    for name in ("locate_many", "locate_plain"):
        find = getattr(Lookup, name)
        monkeypatch.setattr(Lookup, name, lambda self, paths, find=find: queries.append(paths) or find(self, paths))
    read = LocalStore.read
    monkeypatch.setattr(LocalStore, "read", lambda self, *span: reads.append(span) or read(self, *span))
    assert catalog_fs.cat(list(many)) == many
    assert len(queries) == 1
    assert len(reads) == 1
    queries.clear()
    ranges = catalog_fs.cat_ranges(list(many), 0, 2)
    assert ranges == [content[:2] for content in many.values()]
    assert len(queries) == 1


RANGES = [(None, None), (0, None), (2, 5), (None, 4), (-3, None), (-5, -2), (None, -1), (5, 2), (7, 7), (8, 99)]


def test_ranges_are_slices(fs: CafcatFileSystem) -> None:
    for start, end in [*RANGES, (99, None)]:
        for path in ("data/a.csv", "data/deep/d", "large"):
            assert fs.cat_file(path, start, end) == FILES[path][start:end], (path, start, end)
        assert fs.cat_ranges(["top", "both"], [start, 0], [end, 2]) == [b"top"[start:end], b"a "]


def test_errors_of_cat_ranges(fs: CafcatFileSystem) -> None:
    found = fs.cat_ranges(["top", "nothing", "data"], [0, 0, 0], 2, max_gap=10)
    assert found[0] == b"to"
    assert [type(error) for error in found[1:]] == [FileNotFoundError, IsADirectoryError]
    with pytest.raises(TypeError):
        fs.cat_ranges("top", 0, 1)
    with pytest.raises(ValueError, match="zip"):
        fs.cat_ranges(["top"], [0, 1], 1)


def test_open(fs: CafcatFileSystem) -> None:
    with fs.open("large") as file:
        assert (file.size, file.path, file.details) == (len(LARGE), "large", fs.info("large"))
        file.seek(1_000_000)
        assert file.read(10) == LARGE[1_000_000:1_000_010]
        file.seek(-5, io.SEEK_END)
        assert file.read() == LARGE[-5:]
    with fs.open("data/a.csv", "r", encoding="utf-8", newline="") as file:
        assert file.read() == FILES["data/a.csv"].decode()
    with fsspec.open("cafcat://top", **fs.storage_options) as file:
        assert file.read() == b"top"
    assert fs.head("large", 5) == LARGE[:5]
    assert fs.tail("large", 5) == LARGE[-5:]
    assert fs.read_block("data/a.csv", 1, 4, b"\n") == b"1,2\n"
    assert fs.read_text("data/b.csv") == "x,y\n3,4\n"


def test_compressed_files_and_archives_inside(local: cafcat.Repository, catalog_fs: CafcatFileSystem) -> None:
    import gzip

    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("inside.txt", "in a zip")
    commit(local, {"a.gz": gzip.compress(b"text"), "a.zip": packed.getvalue()})
    with catalog_fs.open("a.gz", compression="infer") as file:
        assert file.read() == b"text"
    with zipfile.ZipFile(catalog_fs.open("a.zip")) as archive:
        assert archive.read("inside.txt") == b"in a zip"
    url = "zip://inside.txt::cafcat://a.zip"
    with fsspec.open(url, cafcat=catalog_fs.storage_options) as file:
        assert file.read() == b"in a zip"


def test_damage_is_no_missing_file(catalog_fs: CafcatFileSystem, folder: Folder, tmp_path: Path) -> None:
    [chunk] = folder.folder.glob("*.caf")
    location = catalog_fs._packed.locate("large")
    flip(chunk, location.start_byte + 2_500_000)
    for call in (fsspec.filesystem("cafcat", **catalog_fs.storage_options).cat, catalog_fs.cat_file):
        with pytest.raises(Corrupt):
            call("large")
    with pytest.raises(Corrupt) as raised:
        catalog_fs.get("large", str(tmp_path / "large"))
    assert raised.value.hint == f"run cafcat repair --chunk {location.chunk}, {IF_ORIGINAL}"
    assert not (tmp_path / "large").exists()
    (tmp_path / "old").write_bytes(b"old")
    with pytest.raises(Corrupt):
        catalog_fs.get("large", str(tmp_path / "old"))
    assert (tmp_path / "old").read_bytes() == b"old"
    found = catalog_fs.cat(["large", "top"], on_error="return")
    assert isinstance(found["large"], Corrupt)
    assert found["top"] == b"top"


def test_get(fs: CafcatFileSystem, tmp_path: Path) -> None:
    fs.get("data", str(tmp_path / "out"), recursive=True)
    for path, content in FILES.items():
        if path.startswith("data/"):
            assert (tmp_path / "out" / path.removeprefix("data/")).read_bytes() == content
    fs.get(["top", "large"], [str(tmp_path / "t"), str(tmp_path / "l")])
    assert ((tmp_path / "t").read_bytes(), (tmp_path / "l").read_bytes()) == (b"top", LARGE)
    target = io.BytesIO()
    fs.get_file("large", target)
    assert target.getvalue() == LARGE
    (tmp_path / "link").symlink_to("t")
    fs.get_file("large", str(tmp_path / "link"))
    assert (tmp_path / "t").read_bytes() == LARGE
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    fs.get_file("top", str(tmp_path / "pipe"))
    assert os.read(reader, 10) == b"top"
    os.close(reader)


def test_callbacks_count_bytes(fs: CafcatFileSystem, tmp_path: Path) -> None:
    for path in ("top", "large"):
        callback = fsspec.callbacks.Callback()
        fs.get_file(path, str(tmp_path / path), callback=callback)
        assert callback.value == callback.size == len(FILES[path])


def test_mapper(fs: CafcatFileSystem) -> None:
    mapper = fs.get_mapper("data")
    assert set(mapper) == {path.removeprefix("data/") for path in FILES if path.startswith("data/")}
    assert mapper["deep/er/c.csv"] == b"x,y\n5,6\n"
    assert mapper.getitems(["a.csv", "b.csv"]) == {"a.csv": FILES["data/a.csv"], "b.csv": FILES["data/b.csv"]}
    with pytest.raises(KeyError):
        mapper["nothing"]


def test_asynchronous(options: dict[str, Any]) -> None:
    async def read() -> None:
        fs = fsspec.filesystem("cafcat", asynchronous=True, **options)
        assert fs.loop is None
        found = await asyncio.gather(*(fs._cat_file(path) for path in FILES))
        assert found == list(FILES.values())
        infos = await asyncio.gather(*(fs._info(path) for path in FILES))
        assert [info["size"] for info in infos] == [len(content) for content in FILES.values()]
        assert await fs._find("data/deep") == ["data/deep/d", "data/deep/er/c.csv"]
        assert [folder async for folder, _, _ in fs._walk("data")] == ["data", *DEEP]
        async with await fs.open_async("large") as file:
            file.seek(10)
            assert await file.read(5) == LARGE[10:15]
            assert await file.read() == LARGE[15:]
        with pytest.raises(IsADirectoryError):
            await fs.open_async("data")
        with pytest.raises(ValueError, match="reading only"):
            await fs.open_async("new", "wb")

    asyncio.run(read())


def test_an_open_file_stays_the_same(local: cafcat.Repository, options: dict[str, Any]) -> None:
    """A file that is replaced while it is read does not become a mixture of two files."""

    async def read() -> bytes:
        fs = fsspec.filesystem("cafcat", asynchronous=True, **options)
        async with await fs.open_async("large") as file:
            first = await file.read(10)
            await asyncio.to_thread(commit, local, {"large": LARGE[::-1]})
            return first + bytes(await file.read())

    assert asyncio.run(read()) == LARGE


def test_files_in_a_bucket(open_at: Opener, bucket: Bucket, tmp_path: Path) -> None:
    repository = open_at(bucket)
    commit(repository, FILES)
    settings = repository.settings
    fs = fsspec.filesystem("cafcat", database_url=settings.database_url, home=str(settings.home))
    assert fs.cat(list(FILES)) == FILES
    with fs.open("large") as file:
        assert b"".join(iter(lambda: file.read(100_000), b"")) == LARGE
    fs.get("data", str(tmp_path / "out"), recursive=True)
    assert (tmp_path / "out/deep/er/c.csv").read_bytes() == FILES["data/deep/er/c.csv"]


def test_look_ups_made_together_share_a_query(
    catalog_fs: CafcatFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries: list[object] = []
    find = Lookup.locate_many
    monkeypatch.setattr(Lookup, "locate_many", lambda self, paths: queries.append(paths) or find(self, paths))
    assert catalog_fs.sizes(list(FILES)) == [len(content) for content in FILES.values()]
    assert len(queries) == 1


def test_a_cancelled_look_up_does_not_cancel_others(options: dict[str, Any]) -> None:
    async def look_up() -> None:
        found = lookups.Lookups(fsspec.filesystem("cafcat", **options)._packed)
        first, second = (asyncio.create_task(found.find("top")) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == fsspec.filesystem("cafcat", **options)._packed.locate("top")

    asyncio.run(look_up())


def test_threads_share_a_file_system(fs: CafcatFileSystem) -> None:
    def work(number: int) -> bool:
        path = list(FILES)[number % len(FILES)]
        with fs.open(path) as file:
            return file.read() == fs.cat_file(path) == FILES[path] and fs.info(path)["size"] == len(FILES[path])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(100)))


# Processes


def test_pickled_file_systems(fs: CafcatFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAFCAT_DATABASE_URL", "postgresql:///other?host=/nonexistent")  # of the other process
    monkeypatch.chdir("/")
    again = from_pickle(pickle.dumps(fs))
    assert again.cat("top") == b"top"
    assert again == fs
    assert hash(again) == hash(fs)
    assert again.fsid == fs.fsid
    assert from_pickle(pickle.dumps(fs)) is from_pickle(pickle.dumps(again)) is again
    assert fsspec.AbstractFileSystem.from_json(again.to_json()) is again
    assert fsspec.AbstractFileSystem.from_json(fs.to_json()) is fs


def test_settings_of_the_environment_travel_with_a_pickle(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as first:
        for name, value in options.items():
            first.setenv(f"CAFCAT_{name.upper()}", value)
        fs = fsspec.filesystem("cafcat")
        pickled = pickle.dumps(fs)
    other = fsspec.filesystem("cafcat", home="/nonexistent", skip_instance_cache=True)
    assert from_pickle(pickled).cat("top") == b"top"
    assert from_pickle(pickled) == fs
    assert other != fs


def test_the_password_is_not_in_the_name(tmp_path: Path) -> None:
    url = "postgresql://user:secret@nowhere/db"
    fs = fsspec.filesystem("cafcat", home=str(tmp_path), database_url=url)
    assert "secret" not in fs.fsid + repr(fs)


def test_pickled_open_files(fs: CafcatFileSystem) -> None:
    with fs.open("large") as file:
        file.seek(1234)
        again = from_pickle(pickle.dumps(file))
        assert again.tell() == 1234
        assert again.read() == file.read() == LARGE[1234:]
        again.close()
    opened = fsspec.open("cafcat://top", **fs.storage_options)
    with from_pickle(pickle.dumps(opened)) as file:
        assert file.read() == b"top"


def test_a_pickled_file_that_was_replaced(local: cafcat.Repository, catalog_fs: CafcatFileSystem) -> None:
    with catalog_fs.open("top") as file:
        pickled = pickle.dumps(file)
    commit(local, {"top": b"pot"})
    with pytest.raises(Conflict, match="was replaced after it was opened"):
        from_pickle(pickled)


def read_all(fs: CafcatFileSystem) -> bool:
    paths = list(FILES)
    with fs.open("large") as file:
        return fs.cat(paths) == FILES and file.read() == LARGE and fs.find("data")[0] == "data/[odd]*.txt"


@pytest.mark.covering
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_other_processes(fs: CafcatFileSystem, method: str) -> None:
    """The inherited or pickled object reads in the child, and still reads in the parent."""
    assert read_all(fs)
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(read_all, [fs] * 4) == [True] * 4
    assert read_all(fs)


@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_an_inherited_file_system(fs: CafcatFileSystem) -> None:
    """Without pickling: the child uses the very object of the parent, whose threads it does not have."""
    assert read_all(fs)
    asyncio_pool_used = fs.cat_ranges(["top"] * 20, 0, 1)
    assert asyncio_pool_used == [b"t"] * 20
    process = multiprocessing.get_context("fork").Process(target=lambda: os._exit(0 if read_all(fs) else 1))
    process.start()
    process.join(60)
    assert process.exitcode == 0
    assert read_all(fs)


# Writing


def chunks(repository: cafcat.Repository) -> int:
    return int(sql(repository, "SELECT count(*) FROM chunks WHERE state = 'committed'")[0][0])


def test_a_transaction_is_one_commit(
    local: cafcat.Repository, catalog_fs: CafcatFileSystem, tmp_path: Path
) -> None:
    before, fs = chunks(local), catalog_fs
    (tmp_path / "local").write_bytes(b"on disk")
    with fs.transaction:
        with fs.open("new/a", "wb") as file:
            file.write(b"first")
            file.write(memoryview(b" second"))
        with fs.open("new/large", "wb") as file:
            for start in range(0, len(LARGE), 100_000):
                file.write(LARGE[start : start + 100_000])
        with fs.open("new/text", "w", encoding="utf-16") as file:
            file.write("text")
        fs.pipe("new/b", b"piped")
        fs.pipe({"new/c": b"1", "new/d": b"2"})
        fs.put(str(tmp_path / "local"), "new/e")
        fs.put_file(str(tmp_path / "local"), "new/f")
        fs.touch("new/empty")
        assert fs.find("new") == []
    assert chunks(local) == before + 1
    expected = {"a": b"first second", "large": LARGE, "text": "text".encode("utf-16"), "b": b"piped", "c": b"1"}
    expected |= {"d": b"2", "e": b"on disk", "f": b"on disk", "empty": b""}
    assert fs.cat(fs.find("new")) == {f"new/{name}": content for name, content in expected.items()}
    assert dict(local.read_many([f"new/{name}" for name in expected])) == fs.cat(fs.find("new"))
    assert fs.info("new/e")["mtime"] == pytest.approx((tmp_path / "local").stat().st_mtime, abs=1e-5)


def test_a_failed_transaction_writes_nothing(local: cafcat.Repository, catalog_fs: CafcatFileSystem) -> None:
    before, fs = live(local), catalog_fs

    class Stop(Exception):
        pass

    def fail() -> None:
        with fs.transaction:
            fs.pipe("new/a", b"1")
            with fs.open("new/b", "wb") as file:
                file.write(b"2")
            raise Stop

    with pytest.raises(Stop):
        fail()
    assert live(local) == before
    fs.pipe("new/c", b"3")
    assert live(local) == before | {"new/c"}


def test_a_transaction_with_an_open_file(local: cafcat.Repository, catalog_fs: CafcatFileSystem) -> None:
    before, fs = live(local), catalog_fs

    def leave_open() -> None:
        with fs.transaction:
            fs.pipe("new/a", b"1")
            fs.open("new/b", "wb").write(b"2")

    with pytest.raises(ValueError, match="new/b is still open for writing"):
        leave_open()
    assert live(local) == before
    with fs.transaction:
        fs.pipe("new/a", b"1")
    assert live(local) == before | {"new/a"}


def test_start_and_end_transaction(local: cafcat.Repository, catalog_fs: CafcatFileSystem) -> None:
    catalog_fs.start_transaction()
    catalog_fs.pipe("new/a", b"1")
    assert "new/a" not in local
    catalog_fs.end_transaction()
    assert local.read("new/a") == b"1"
    catalog_fs.pipe("new/b", b"2")
    assert local.read("new/b") == b"2"


def test_each_file_is_a_commit_without_transaction(local: cafcat.Repository, catalog_fs: CafcatFileSystem) -> None:
    before, fs = chunks(local), catalog_fs
    with fs.open("new/a", "wb") as file:
        file.write(b"1")
        assert "new/a" not in local
    assert local.read("new/a") == b"1"
    assert chunks(local) == before + 1
    fs.pipe({f"new/{number}": b"%d" % number for number in range(20)})
    assert chunks(local) == before + 2
    assert fs.cat_file("new/7") == b"7"


def test_put_of_a_folder_is_one_commit(
    local: cafcat.Repository, catalog_fs: CafcatFileSystem, tmp_path: Path
) -> None:
    before = chunks(local)
    tree(FILES, tmp_path / "tree")
    catalog_fs.put(str(tmp_path / "tree"), "copied", recursive=True)
    assert chunks(local) == before + 1
    found = {path.removeprefix("copied/"): data for path, data in local.read_many(catalog_fs.find("copied"))}
    assert found == {path: content for path, content in FILES.items() if path != "both"}


def test_an_error_in_the_block_of_a_file_discards_it(
    local: cafcat.Repository, catalog_fs: CafcatFileSystem
) -> None:
    before = live(local)

    def write_half(mode: str, half: str | bytes) -> None:
        with catalog_fs.open("half", mode) as file:
            file.write(half)
            raise ZeroDivisionError

    for mode, half in (("wb", b"half"), ("w", "half")):
        with pytest.raises(ZeroDivisionError):
            write_half(mode, half)
    assert live(local) == before


def test_a_file_that_is_not_closed_is_discarded(local: cafcat.Repository, catalog_fs: CafcatFileSystem) -> None:
    file = catalog_fs.open("dropped", "wb")
    file.write(b"half")
    with pytest.warns(ResourceWarning, match="dropped was opened for writing and not closed"):
        del file
    assert "dropped" not in local


def test_new_files(local: cafcat.Repository, catalog_fs: CafcatFileSystem) -> None:
    fs = catalog_fs
    for call in (
        lambda: fs.open("top", "xb"),
        lambda: fs.pipe_file("top", b"", mode="create"),
        lambda: fs.put_file(__file__, "top", mode="create"),
    ):
        with pytest.raises(FileExistsError):
            call()
    file = fs.open("fresh", "xb")
    commit(local, {"fresh": b"of another"})
    with pytest.raises(FileExistsError):
        file.close()
    assert file.closed
    assert local.read("fresh") == b"of another"
    fs.start_transaction()
    fs.pipe("new/a", b"1", mode="create")
    fs.pipe("new/b", b"1")
    commit(local, {"new/a": b"of another"})
    with pytest.raises(FileExistsError):
        fs.end_transaction()
    assert local.read("new/a") == b"of another"
    assert "new/b" not in local


def test_impossible_names(catalog_fs: CafcatFileSystem) -> None:
    for path in ("", "../a", "a//b", "a/./b", "a\0b", "\udcff", "x" * 3000):
        with pytest.raises(ValueError, match="no file can be written under the path"):
            catalog_fs.open(path, "wb")
        with pytest.raises(ValueError, match="no file can be written under the path"):
            catalog_fs.pipe(path, b"")


def test_what_a_catalog_does_not_do(catalog_fs: CafcatFileSystem) -> None:
    fs = catalog_fs
    fs.mkdir("folder")
    fs.makedirs("folder/inside", exist_ok=True)
    for call in (
        lambda: fs.rm("top"),
        lambda: fs.rm("data", recursive=True),
        lambda: fs.rm_file("top"),
        lambda: fs.mv("top", "other"),
        lambda: fs.cp("top", "other"),
        lambda: fs.open("top", "ab"),
        lambda: fs.open("top", "r+b"),
        lambda: fs.open("new.gz", "wb", compression="gzip"),
    ):
        with pytest.raises(NotImplementedError, match=r"cafcat://|packed files|fsspec.open"):
            call()
    assert fs.cat("top") == b"top"
    with fsspec.open("cafcat://new.gz", "wb", compression="gzip", **fs.storage_options) as file:
        file.write(b"text")
    assert fs.open("new.gz", compression="gzip").read() == b"text"


def test_a_snapshot_is_read_only(snapshot_options: dict[str, Any], tmp_path: Path) -> None:
    fs = fsspec.filesystem("cafcat", **snapshot_options)
    (tmp_path / "file").touch()
    for call in (
        lambda: fs.open("new", "wb"),
        lambda: fs.pipe("new", b""),
        lambda: fs.put(str(tmp_path / "file"), "new"),
        lambda: fs.touch("new"),
    ):
        with pytest.raises(OSError, match="a snapshot is read-only"):
            call()


def test_threads_write(local: cafcat.Repository, catalog_fs: CafcatFileSystem) -> None:
    def write(number: int) -> None:
        with catalog_fs.open(f"new/{number}", "wb") as file:
            file.write(b"%d" % number)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(12)))
    assert {local.read(f"new/{number}") for number in range(12)} == {b"%d" % number for number in range(12)}


# Opening


def test_wrong_options(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no such setting: nonsense"):
        fsspec.filesystem("cafcat", nonsense=1)
    with pytest.raises(NotFound, match="there is no such snapshot"):
        fsspec.filesystem("cafcat", snapshot=str(tmp_path / "nothing"))
    assert fsspec.get_filesystem_class("cafcat") is CafcatFileSystem


def test_the_entry_point_is_the_file_system() -> None:
    """fsspec imports this name when a program uses `cafcat://` for the first time."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    name = project["entry-points"]["fsspec.specs"]["cafcat"]
    assert pkgutil.resolve_name(name) is CafcatFileSystem
