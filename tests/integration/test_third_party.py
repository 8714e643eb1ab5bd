"""A store and a source of a third-party package are used like cafcat's own."""

import gzip
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import cafcat
from cafcat.errors import InvalidInput, Unsupported
from cafcat.formats.caf.format import CAF
from cafcat.model import VerifyLevel
from cafcat.stores.registry import open_store
from cafcat.testing.formats import pack
from tests.third_party import package

__all__ = ["package"]

FILES = {"tree/a": b"first", "tree/b": b"second" * 1000, "tree/d/c": b""}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for path, content in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "tree"


@pytest.fixture
def repository(tmp_path: Path, database_url: str, package: Path, tree: Path) -> Iterator[cafcat.Repository]:
    """A repository whose default store is a third-party one."""
    store = f"file+gz://{tmp_path}/chunks"
    with cafcat.open(database_url=database_url, home=tmp_path / "home", store=store) as repository:
        yield repository


def test_files_are_packed_read_and_verified_in_a_third_party_store(
    repository: cafcat.Repository, tmp_path: Path
) -> None:
    assert repository.ingest(["tree"], jobs=1).files_added == len(FILES)
    assert {path: repository.read(path) for path in FILES} == FILES
    assert repository.read("tree/b", 3, 9) == b"ondsec"
    [chunk] = repository.chunks()
    assert chunk.store == f"file+gz://{tmp_path}/chunks"
    assert gzip.decompress((tmp_path / "chunks" / f"{chunk.object_key}.gz").read_bytes())
    location = repository.locate("tree/a")
    assert repository.url_of(location) == repository.object_of(location) == f"{chunk.store}/{chunk.object_key}"
    with pytest.raises(InvalidInput, match=r"file\+gz://.* cannot sign URLs"):
        repository.signed_url(location, 60)
    report = repository.verify(level=VerifyLevel.DATA, jobs=1)
    assert (report.ok, report.damaged) == (1, 0)


def test_damage_in_a_third_party_store_is_found_and_repaired(repository: cafcat.Repository, tmp_path: Path) -> None:
    repository.ingest(["tree"], jobs=1)
    repository.copy(to=str(tmp_path / "copies"))
    [file] = (tmp_path / "chunks").glob("*.gz")
    file.write_bytes(gzip.compress(gzip.decompress(file.read_bytes()).replace(b"second", b"secund")))
    assert repository.verify(level=VerifyLevel.DATA, jobs=1).damaged == 1
    assert repository.read("tree/b") == FILES["tree/b"]
    assert repository.repair(from_copies=True).files_from_copy == 1
    assert repository.verify(level=VerifyLevel.DATA, jobs=1).damaged == 0


def test_chunks_are_migrated_to_a_third_party_store(repository: cafcat.Repository, tmp_path: Path) -> None:
    local = str(tmp_path / "local")
    with cafcat.open(database_url=repository.settings.database_url, home=tmp_path / "home", store=local) as other:
        other.ingest(["tree"], jobs=1)
        other.migrate_store(local, repository.settings.store)
    assert {path: repository.read(path) for path in FILES} == FILES
    assert repository.check_store(repository.settings.store).is_usable
    [chunk] = repository.chunks()
    assert chunk.store == repository.settings.store


def test_an_archive_in_a_third_party_store_is_inspected_and_adopted(
    repository: cafcat.Repository, tmp_path: Path
) -> None:
    data, _, _ = pack(CAF, [("x", b"content", None)])
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "old.caf.gz").write_bytes(gzip.compress(data))
    url = f"file+gz://{tmp_path}/others/old.caf"
    assert [entry.path for entry in cafcat.inspect(url, repository.settings).entries] == ["x"]
    repository.adopt([url])
    assert repository.read("x") == b"content"


def test_options_of_a_third_party_store_are_set_in_the_configuration(
    repository: cafcat.Repository, tmp_path: Path
) -> None:
    config = tmp_path / "cafcat.toml"
    text = f'[stores.small]\nurl = "file+gz://{tmp_path}/small/"\nlevel = "0"\n'
    config.write_text(text)
    settings = cafcat.Settings.load(environ={}, config=config, store="small")
    assert settings.store == f"file+gz://{tmp_path}/small"
    assert settings.options_of(f"{settings.store}/below") == {"level": "0"}
    store = open_store(settings.store, settings.store_context(settings.store))
    upload = store.create("key")
    upload.write(bytes(1000))
    upload.commit()
    assert (tmp_path / "small" / "key.gz").stat().st_size > 1000
    config.write_text(text.replace('"0"', '"x"'))
    with pytest.raises(InvalidInput, match=r"level \(file .*: stores.small.level\) must be a level from 0 to 9"):
        cafcat.Settings.load(environ={}, config=config)
    config.write_text(text.replace("level", "region"))
    with pytest.raises(InvalidInput, match=r"unknown key stores.small.region .* keys are url, level"):
        cafcat.Settings.load(environ={}, config=config)


def test_files_are_packed_and_verified_from_a_third_party_source(
    repository: cafcat.Repository, tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "files.zip", "w") as archive:
        for path in FILES:
            archive.write(path)
    url = f"zip://{tmp_path}/files.zip"
    assert repository.ingest([url], prefix="p", exclude=["c"]).files_added == 2
    assert repository.read("p/tree/a") == b"first"
    report = repository.ingest([url], prefix="p")
    assert report.files_added == 1
    report = repository.verify([url], level=VerifyLevel.SOURCE, prefix="p")
    assert (report.ok, report.files_checked) == (1, len(FILES))
    with pytest.raises(InvalidInput, match="--inventory replaces the listing of exactly one bucket"):
        repository.ingest([url], inventory="manifest.json")
    assert repository.ingest(files_from=_list(tmp_path, url)).files_failed == 1


def _list(folder: Path, url: str) -> str:
    (folder / "list").write_text(f"{url}\n")
    return str(folder / "list")


def test_the_command_line_uses_a_third_party_store(
    repository: cafcat.Repository, tmp_path: Path, package: Path
) -> None:
    """The command runs in several processes, each of which finds the package by itself."""
    environment = {
        "PYTHONPATH": f"{package}:{Path(cafcat.__file__).parents[1]}",
        "CAFCAT_HOME": str(tmp_path / "home"),
        "CAFCAT_DATABASE_URL": repository.settings.database_url or "",
        "CAFCAT_STORE": repository.settings.store,
    }

    def run(*arguments: str, code: int = 0) -> str:
        command = [sys.executable, "-m", "cafcat", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        return done.stdout

    run("ingest", "-q", "-j", "2", "tree")
    assert run("cat", "tree/a") == "first"
    assert run("locate", "tree/a").splitlines()[-1] == "cafcat cat -- tree/a"
    run("verify", "-q", "--level", "data", "-j", "2")
    assert f"store = {repository.settings.store}" in run("config")
    run("url", "--presign", "tree/a", code=2)


def test_without_the_package_the_error_names_the_kinds_that_are_installed(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"no kind of store for the scheme 'file\+gz'.*file://, .*s3://"):
        open_store(f"file+gz://{tmp_path}")
    with pytest.raises(InvalidInput, match=r"file://, .*s3://"):
        cafcat.inspect(f"file+gz://{tmp_path}/x.caf")
