"""`cafcat store`, and homes that are moved to another path or another machine."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import psycopg
import pytest

from cafcat.catalog.stores.stores import StoreRow
from cafcat.operations.stores.migrate import MigrateReport
from cafcat.operations.stores.move import StoreMoveReport
from tests.e2e.conftest import Cafcat, documented_keys, interrupted
from tests.worlds.servers.services import Databases

CONTENT = {"tree/a": b"a" * 1000, "tree/b": b"b" * 2000}


def fill(cafcat: Cafcat) -> None:
    for path, data in CONTENT.items():
        (cafcat.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (cafcat.folder / path).write_bytes(data)
    cafcat("ingest", "tree", "-q")


def url_of(folder: Path) -> str:
    return folder.as_uri()


@pytest.mark.parametrize(
    ("verb", "kind"),
    [("store ls", StoreRow), ("store move", StoreMoveReport), ("store migrate", MigrateReport)],
)
def test_all_keys_are_documented(verb: str, kind: type) -> None:
    names = getattr(kind, "_fields", None) or [field.name for field in fields(kind)]
    assert set(names) <= documented_keys(verb)


def test_listing_and_naming(cafcat: Cafcat) -> None:
    fill(cafcat)
    url = url_of(cafcat.folder / "store")
    assert url in cafcat("store", "ls").text
    assert cafcat("store", "add", "main", "store").text == f"the store main is at {url}\n"
    assert cafcat("store", "rename", "main", "disk-1").text == f"the store disk-1 is at {url}\n"
    refused = cafcat("store", "add", "other", "store", code=1).err
    assert f"the store {url} has the name disk-1; `cafcat store rename disk-1 other`" in refused
    for _ in range(2):
        cafcat("store", "add", "disk-2", "second")
    cafcat("store", "rename", "disk-2", "disk-1", code=1)
    cafcat("store", "add", "a/b", "second", code=2)
    assert "there is no folder" in cafcat("store", "add", "typo", "no-such-folder/chunks", code=2).err
    first, second = cafcat("store", "ls", "--json").documents
    assert (first["name"], first["url"], first["chunks"], first["moves_with_home"]) == ("disk-1", url, 1, False)
    assert (second["name"], second["chunks"]) == ("disk-2", 0)
    assert cafcat("copy", "--all", "--to", "disk-2", "--json").document["summary"]["copied"] == 1
    assert not (cafcat.folder / "disk-2").exists()
    cafcat("store", "rm", "disk-1", code=1)
    cafcat("store", "rm", "none", code=4)


def test_a_store_is_also_named_by_a_file_url_with_one_slash(cafcat: Cafcat) -> None:
    """RFC 8089 allows file:/FOLDER."""
    fill(cafcat)
    first, second = (f"file:{cafcat.folder}/{name}" for name in ("store", "second"))
    assert cafcat("verify", "--store", first, "--json").document["summary"]["ok"] == 1
    cafcat("copy", "--all", "--to", second)
    cafcat("store", "add", "main", first)
    cafcat("ingest", "tree", "--prefix", "more", "--store", second, "-q")
    assert cafcat("store", "check", second, "--json").document["store"] == url_of(cafcat.folder / "second")
    cafcat("store", "migrate", second, first)
    names = [row["url"] for row in cafcat("store", "ls", "--json").documents]
    assert names == [url_of(cafcat.folder / name) for name in ("store", "second")]
    assert not (cafcat.folder / "file:").exists()


def test_moved_store_is_explained_and_repaired(cafcat: Cafcat) -> None:
    """A folder was moved by hand. Every message names the remedy, and the remedy works."""
    fill(cafcat)
    old, new = cafcat.folder / "store", cafcat.folder / "new place"
    old.rename(new)
    result = cafcat("cat", "tree/a", code=1)
    assert f"run: cafcat store move {url_of(old)} NEW-URL" in result.err
    assert cafcat("cat", "tree/a", "--json", code=1).error["kind"] == "unavailable"
    assert "cafcat store move" in cafcat("ingest", "tree", code=1).err
    assert "cafcat store move" in cafcat("store", "check", "store", code=1).err
    assert "cafcat store move" in cafcat("backup", "--list", "--to", "store", code=1).err
    assert "cafcat store move" in cafcat("backup", "--list", code=1).err
    assert "cafcat store move" in cafcat("restore", "--from", "store", code=1).err
    assert not old.exists()
    result = cafcat("verify", code=3)
    assert result.lines[-1] == "nothing was verified; 1 store out of reach"
    assert sum("cafcat store move" in line for line in result.lines) == 1
    assert cafcat("store", "move", "store", "new place", "--dry-run").text.startswith("would move ")
    result = cafcat("store", "move", "store", "new place", "--all")
    assert result.text.startswith(f"moved {url_of(old)} to {url_of(new)}: 1 object")
    assert "the setting store still means" in result.err
    moved = Cafcat(cafcat.folder, cafcat.database_url, {"CAFCAT_STORE": str(new)})
    assert moved("cat", "tree/a").out == CONTENT["tree/a"]
    assert "verified 1 object (index): 1 ok" in moved("verify").text
    assert "unchanged 2" in moved("ingest", "tree").text


def test_a_move_without_objects_is_refused(cafcat: Cafcat) -> None:
    fill(cafcat)
    assert "it has no marker of this catalog" in cafcat("store", "move", "store", "elsewhere", code=1).err
    shutil.copytree(cafcat.folder / "store" / "catalogs", cafcat.folder / "elsewhere" / "catalogs")
    result = cafcat("store", "move", "store", "elsewhere", code=1)
    assert "1 of 1 objects" in result.err
    assert "cafcat store migrate" in result.err
    assert cafcat("cat", "tree/a").out == CONTENT["tree/a"]


def test_migrating_and_pruning(cafcat: Cafcat) -> None:
    fill(cafcat)
    summary = cafcat("store", "migrate", "store", "./second", "--json").documents[-1]["summary"]
    assert (summary["chunks"], summary["left"], summary["failed"]) == (1, 0, [])
    assert "1 copy that a migration left less than 7d ago" in cafcat("prune", "--yes").text
    assert cafcat("prune", "--grace", "0", "--yes").text.startswith("removed 1 copy: freed")
    assert not list((cafcat.folder / "store").glob("*.caf"))
    assert cafcat("cat", "tree/a").out == CONTENT["tree/a"]
    assert cafcat("store", "rm", "store").text == f"removed {url_of(cafcat.folder / 'store')} from the catalog\n"


def test_migrate_of_a_damaged_chunk_without_live_files_names_prune(cafcat: Cafcat) -> None:
    """repair refuses such a chunk, because no path points to it."""
    fill(cafcat)
    [chunk] = (cafcat.folder / "store").glob("*.caf")
    chunk.write_bytes(chunk.read_bytes()[:-1])
    cafcat("rm", "-r", "tree", "--yes", "-q")
    done = cafcat("store", "migrate", str(cafcat.folder / "store"), "./new", code=3)
    assert "no live file is in this chunk: cafcat prune removes it after the grace period" in done.err
    assert "1 object stays in file:" in done.text


def test_a_migrated_store_that_was_verified_loses_its_name(cafcat: Cafcat) -> None:
    """The results of verify refer to the row of the old store."""
    fill(cafcat)
    cafcat("store", "add", "old", "store")
    cafcat("copy", "--all", "--to", "./third", "-q")
    cafcat("store", "add", "third", "third")
    cafcat("verify", "-q")
    cafcat("store", "migrate", "third", "./second", "-q")
    cafcat("prune", "--grace", "0", "--yes")
    url = url_of(cafcat.folder / "third")
    removed = f"removed the name third; the history of deleted objects refers to {url}\n"
    assert cafcat("store", "rm", "third").text == removed
    assert url not in cafcat("store", "ls").text
    assert "leaves it out" in cafcat("store", "rm", url, code=1).err
    cafcat("store", "rm", "old", code=1)
    assert cafcat("store", "ls").lines[0].startswith("old ")


def test_a_configured_name_wins_over_the_same_name_in_the_catalog(cafcat: Cafcat) -> None:
    fill(cafcat)
    cafcat("store", "add", "disk", "in-catalog")
    config = cafcat.folder / "cafcat.toml"
    config.write_text('[stores.disk]\nurl = "in-file"\n')
    cafcat("copy", "--all", "--to", "disk", "--config", config, "-q")
    assert (cafcat.folder / "in-file").exists()
    assert not (cafcat.folder / "in-catalog").exists()


def test_a_name_in_the_catalog_names_the_store_of_every_verb(cafcat: Cafcat) -> None:
    fill(cafcat)
    cafcat("store", "add", "disk", "in-catalog")
    cafcat("ingest", "tree", "--store", "disk", "--force", "-q")
    assert len(list((cafcat.folder / "in-catalog").glob("*.caf"))) == 1
    assert not (cafcat.folder / "disk").exists()
    for verb in (["verify"], ["prune", "--yes"], ["repack"], ["recover"], ["backup"], ["backup", "--list"]):
        cafcat(*verb, "--store", "disk")
    assert len(list((cafcat.folder / "in-catalog" / "backups").iterdir())) == 1
    assert cafcat("store", "check", "disk", "--json").document["store"] == url_of(cafcat.folder / "in-catalog")


# Homes that move. Only CAFCAT_HOME is set: the database is the embedded one, the store the default.


@dataclass
class AtHome(Cafcat):
    """The command with a home, and no other settings."""

    home: Path = Path()

    @property
    def environment(self) -> dict[str, str]:
        kept = super().environment
        del kept["CAFCAT_STORE"]
        return kept | {"CAFCAT_HOME": str(self.home)}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[AtHome]:
    """A home whose name must be encoded in URLs."""
    cafcat = AtHome(tmp_path, None, home=tmp_path / "first home é 100%25")
    yield cafcat
    for found in list(tmp_path.glob("*home*")):
        if not found.is_symlink() and (found / "postgres").exists():
            AtHome(tmp_path, None, home=found)("db", "stop")


def check_every_verb(cafcat: AtHome) -> None:
    """Run each verb. All must succeed, and write below the home at its present path."""
    chunks = url_of(cafcat.home.resolve() / "chunks")
    assert cafcat("ingest", "tree", "--json").documents[-1]["summary"]["files_added"] == 0
    (cafcat.folder / "tree" / "new").write_bytes(cafcat.home.name.encode())
    cafcat("ingest", "tree", "-q")
    for path, data in CONTENT.items():
        assert cafcat("cat", path).out == data
    assert {store["url"] for store in cafcat("store", "ls", "--json").documents} == {chunks}
    assert {chunk["store"] for chunk in cafcat("chunks", "ls", "--json").documents} == {chunks}
    assert cafcat("verify", "--level", "data", "-q").code == 0
    target = cafcat.folder / f"out of {cafcat.home.name}"
    cafcat("extract", "tree", "-C", target, "-q")
    assert (target / "tree" / "a").read_bytes() == CONTENT["tree/a"]
    shell = cafcat("locate", "tree/a").lines[-1]
    assert subprocess.run(["sh", "-c", shell], capture_output=True, check=True).stdout == CONTENT["tree/a"]
    cafcat("rm", "tree/new", "--yes", "-q")
    cafcat("undelete", "tree/new", "-q")
    for verb in (["backup"], ["recover"], ["repack", "--yes"], ["prune", "--yes"], ["stats"], ["ls", "-l"]):
        cafcat(*verb, "-q")
    snapshot = cafcat.folder / f"{cafcat.home.name}.cafs"
    cafcat("snapshot", "-o", snapshot, "-q")
    assert cafcat("db", "check").text == "nothing is wrong\n"


def test_moved_home_works(home: AtHome, tmp_path: Path) -> None:
    """The embedded server is still running when the home is moved."""
    fill(home)
    moved = AtHome(tmp_path, None, home=tmp_path / "second home #?")
    home.home.rename(moved.home)
    check_every_verb(moved)
    assert not home.home.exists()


@pytest.mark.parametrize("verb", ["rebuild", "restore"])
def test_a_home_moves_after_its_database_was_lost(home: AtHome, tmp_path: Path, verb: str) -> None:
    """The home is moved at once: no other command has used the new database."""
    fill(home)
    home("backup", "-q")
    home("db", "stop")
    shutil.rmtree(home.home / "postgres")
    home(verb, "-q")
    home("db", "stop")
    moved = AtHome(tmp_path, None, home=tmp_path / "second home")
    home.home.rename(moved.home)
    [store] = moved("store", "ls", "--json").documents
    assert (store["moves_with_home"], store["uuid"] is None) == (True, False)
    check_every_verb(moved)


def test_copy_of_a_home_on_another_machine_works(home: AtHome, tmp_path: Path) -> None:
    """The copy has lost its modes, and has leftovers of the first home's server. The first home still works."""
    fill(home)
    home("db", "stop")
    copied = AtHome(tmp_path, None, home=tmp_path / "copied home")
    shutil.copytree(home.home, copied.home, copy_function=shutil.copyfile)
    (copied.home / "postgres").chmod(0o755)
    (copied.home / "postgres" / "postmaster.pid").write_text(
        f"1\n{home.home}/postgres\n1700000000\n5432\n/run/user/0/cafcat/0123456789abcdef\n\n  1  1\nready   \n"
    )
    (copied.home / "postgres.running").touch()
    check_every_verb(copied)
    assert home("cat", "tree/a").out == CONTENT["tree/a"]
    chunks = [json.loads(line)["store"] for line in home("chunks", "ls", "--json").lines]
    assert set(chunks) == {url_of(home.home / "chunks")}


def test_a_home_behind_a_symbolic_link_has_one_store(home: AtHome, tmp_path: Path) -> None:
    fill(home)
    link = AtHome(tmp_path, None, home=tmp_path / "link")
    link.home.symlink_to(home.home)
    check_every_verb(link)
    assert home("cat", "tree/a").out == CONTENT["tree/a"]


def test_store_outside_a_moved_home_keeps_its_url(home: AtHome, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    home.extra["CAFCAT_STORE"] = str(outside)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a").write_bytes(b"a")
    AtHome(tmp_path, None, home=home.home)("ingest", "tree", "-q", "--store", outside)
    moved = AtHome(tmp_path, None, home=tmp_path / "second home")
    home.home.rename(moved.home)
    assert moved("cat", "tree/a").out == b"a"
    assert [store["url"] for store in moved("store", "ls", "--json").documents] == [url_of(outside)]


def test_store_that_the_documented_update_moved_out_of_the_home_stays_there(home: AtHome, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "sql.md").read_text()
    [statement] = re.findall("`(UPDATE stores SET url = NEW.* WHERE url = OLD)`", page)
    fill(home)
    outside = tmp_path / "outside"
    (home.home / "chunks").rename(outside)
    update = statement.replace("NEW", "%s").replace("OLD", "%s")
    with psycopg.connect(home("db", "url").text.strip()) as connection:
        connection.execute(update.encode(), [url_of(outside), url_of(home.home / "chunks")])
    assert home("cat", "tree/a").out == CONTENT["tree/a"]
    home("db", "stop")
    moved = AtHome(tmp_path, None, home=tmp_path / "second home")
    home.home.rename(moved.home)
    assert moved("cat", "tree/a").out == CONTENT["tree/a"]
    [store] = moved("store", "ls", "--json").documents
    assert (store["url"], store["moves_with_home"]) == (url_of(outside), False)


def test_interrupted_migration_names_the_next_step(cafcat: Cafcat) -> None:
    fill(cafcat)
    result, _ = interrupted(cafcat, "store", "migrate", "store", "./second", presses=2)
    assert result.code == 130
    assert "run the same migrate again to continue" in result.err
    assert cafcat("store", "migrate", "store", "./second").text.startswith("migrated 1 chunk")


@pytest.mark.parametrize(
    "command",
    [
        ("ingest", "tree", "--store", "disk9"),
        ("ingest", "tree", "--dry-run", "--store", "disk9"),
        ("backup", "--to", "disk9"),
        ("copy", "--all", "--to", "disk9"),
        ("store", "migrate", "store", "disk9"),
    ],
)
def test_a_bare_word_that_names_nothing_makes_no_store(cafcat: Cafcat, command: tuple[str, ...]) -> None:
    fill(cafcat)
    result = cafcat(*command, code=2)
    assert "no store and no folder is called disk9" in result.err
    assert "write ./disk9 for a new folder" in result.err
    assert not (cafcat.folder / "disk9").exists()
    assert len(cafcat("store", "ls").lines) == 1


@pytest.mark.parametrize("name", ["s3//bucket/x", "./mnt/disk9/chunks"])
@pytest.mark.parametrize(
    "command", ["ingest tree --store", "backup --to", "copy --all --to", "store migrate store"]
)
def test_a_new_store_needs_the_folder_that_it_is_in(cafcat: Cafcat, command: str, name: str) -> None:
    fill(cafcat)
    result = cafcat(*command.split(), name, code=2)
    assert f"there is no folder {(cafcat.folder / name).parent} for the new store" in result.err
    assert "mount its disk, correct the name (a bucket is s3://BUCKET/PREFIX), or make the folder" in result.err
    assert len(cafcat("store", "ls").lines) == 1
    assert not (cafcat.folder / "s3").exists()
    assert not (cafcat.folder / "mnt").exists()


@pytest.mark.parametrize("name", ["env.sh", "./env.sh"])
@pytest.mark.parametrize(
    "command",
    [
        "ingest tree --store",
        "backup --to",
        "backup --list --to",
        "copy --all --to",
        "store migrate store",
        "store add f",
        "store check",
        "rebuild",
    ],
)
def test_a_file_is_no_store(cafcat: Cafcat, command: str, name: str) -> None:
    fill(cafcat)
    file = cafcat.folder / "env.sh"
    file.write_text("export A=1\n")
    result = cafcat(*command.split(), name, code=2)
    assert f"{file} is a file, and a store needs a folder" in result.err
    assert len(cafcat("store", "ls").lines) == 1


def test_a_name_with_a_colon_makes_no_store(cafcat: Cafcat) -> None:
    fill(cafcat)
    result = cafcat("ingest", "tree", "--force", "--store", "rclone:remote", code=2)
    assert "no store is called rclone:remote; kinds of stores are az://, file://, gs://, s3://" in result.err
    assert len(cafcat("store", "ls").lines) == 1


def test_a_bare_word_in_the_environment_names_a_store_or_a_folder(cafcat: Cafcat) -> None:
    fill(cafcat)
    other = Cafcat(cafcat.folder, cafcat.database_url, {"CAFCAT_STORE": "disk9"})
    assert "no store and no folder is called disk9" in other("ingest", "tree", code=2).err
    (cafcat.folder / "disk9").mkdir()
    other("ingest", "tree", "--force", "-q")
    assert list((cafcat.folder / "disk9").glob("*.caf"))


def test_a_name_in_the_environment_is_that_of_the_catalog_also_for_doctor_and_config(cafcat: Cafcat) -> None:
    place = cafcat.folder / "third place"
    place.mkdir()
    cafcat("store", "add", "three", place)
    named = Cafcat(cafcat.folder, cafcat.database_url, {"CAFCAT_STORE": "three"})
    (cafcat.folder / "file").write_bytes(b"1")
    named("ingest", "file", "-q")
    checks = named("doctor", "--json", code=1).document["checks"]  # the server of the tests does not sync
    space = [check["found"].partition(" free for ")[2] for check in checks if check["check"] == "store space"]
    assert [text.partition(":")[0] for text in space] == [str(place)]
    beside = cafcat.folder / "three"
    line = f"store = three: the store of this name in the catalog, else {beside}  (environment CAFCAT_STORE)"
    assert line in named("config").lines


def test_a_setting_that_means_a_name_of_before_is_reported(cafcat: Cafcat) -> None:
    fill(cafcat)
    cafcat("store", "add", "disk", "second")
    other = Cafcat(cafcat.folder, cafcat.database_url, {"CAFCAT_STORE": "disk"})
    assert (
        "the setting store still has the value disk: change it to d2" in other("store", "rename", "disk", "d2").err
    )
    assert other("store", "rename", "d2", "disk").err == ""
    assert "the setting store still has the value disk" in other("store", "rm", "disk").err


def test_a_store_that_is_refused_leaves_no_row(cafcat: Cafcat, databases: Databases) -> None:
    fill(cafcat)
    cafcat("store", "add", "main", "store")
    assert "another store has the name" in cafcat("store", "add", "main", "second", code=1).err
    with databases.fresh(databases.template()) as url:
        other = Cafcat(cafcat.folder, url, {"CAFCAT_STORE": str(cafcat.folder / "other")})
        other("ingest", "tree", "-q")
    assert "--join-store" in cafcat("store", "migrate", "main", "./other", code=1).err
    assert len(cafcat("store", "ls").lines) == 1
    assert cafcat("store", "migrate", "main", "./other", "--join-store").text.startswith("migrated 1 chunk")
    assert cafcat("cat", "tree/a").out == CONTENT["tree/a"]


def test_a_bucket_that_does_not_answer_leaves_no_row(cafcat: Cafcat, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "some")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    (cafcat.folder / "file").write_bytes(b"1")
    before = cafcat("store", "ls").text
    assert "s3://no-such-bucket" in cafcat("ingest", "file", "--store", "s3://no-such-bucket", code=1).err
    assert cafcat("store", "ls").text == before


def test_a_lost_store_is_given_up(cafcat: Cafcat) -> None:
    (cafcat.folder / "file").write_bytes(b"1")
    cafcat("ingest", "file", "-q")
    shutil.rmtree(cafcat.folder / "store")
    url = (cafcat.folder / "store").as_uri()
    loss = f"{url}: lost 1 chunk with 1 file (1 B); 0 chunks read from copies; lost 0 copies and 0 backups"
    assert cafcat("store", "rm", url, "--lost", "--dry-run").lines == [f"would give up {loss}"]
    result = cafcat("store", "rm", url, "--lost", code=9)
    assert result.lines == [f"would give up {loss}"]
    assert "nobody can be asked; run it again with --yes" in result.err
    assert cafcat("store", "rm", url, "--lost", "--yes").lines == [f"gave up {loss}"]
    assert cafcat("ls").text == ""
    assert cafcat("verify", "-q").code == cafcat("prune", "--yes", "-q").code == cafcat("recover", "-q").code == 0
    assert "are for --lost only" in cafcat("store", "rm", url, "--yes", code=2).err


def test_a_lost_store_that_lacks_journal_records_can_only_be_given_up(cafcat: Cafcat) -> None:
    fill(cafcat)
    shutil.rmtree(cafcat.folder / "store")
    cafcat("rm", "tree/a", "-q")
    url = url_of(cafcat.folder / "store")
    result = cafcat("store", "rm", url, code=1)
    assert f"the catalog still refers to the store {url}" in result.err
    assert f"cafcat store rm {url} --lost" in result.err


def test_ingest_does_not_create_the_old_folder_of_a_moved_store(cafcat: Cafcat) -> None:
    fill(cafcat)
    old, new = cafcat.folder / "store", cafcat.folder / "new"
    for source, target in ((old, new), (new, cafcat.folder / "newest")):
        source.rename(target)
        cafcat("store", "move", source, target)
    result = cafcat("ingest", "tree", "--force", code=1)
    assert f"was moved to {url_of(cafcat.folder / 'newest')}" in result.err
    assert "cafcat store add NAME" in result.err
    cafcat("copy", "--all", "--to", old, code=1)
    assert not old.exists()
    cafcat("store", "add", "again", old)
    cafcat("ingest", "tree", "--force", "-q")
    assert list(old.glob("*.caf"))


def test_a_moved_store_that_was_removed_later_is_not_proposed(cafcat: Cafcat) -> None:
    fill(cafcat)
    old, new = cafcat.folder / "store", cafcat.folder / "new"
    old.rename(new)
    cafcat("store", "move", old, new)
    cafcat("store", "migrate", new, cafcat.folder / "last", "-q")
    cafcat("prune", "--grace", "0", "--yes", "-q")
    cafcat("store", "rm", new, "-q")
    result = cafcat("ingest", "tree", "--force", code=1)
    assert f"was moved to {url_of(new)}, which the catalog does not have any more" in result.err
    assert "name another store (cafcat store ls)" in result.err


def test_a_store_that_was_given_up_is_not_new(cafcat: Cafcat, tmp_path: Path) -> None:
    """Files were packed into the old place of a store that had moved."""
    fill(cafcat)
    old, new = tmp_path / "store", tmp_path / "new place"
    shutil.copytree(old, new)
    cafcat("store", "move", old, new, "--all")
    (tmp_path / "tree" / "late").write_bytes(b"late")
    cafcat("ingest", "tree", "-q")
    shutil.rmtree(old)
    cafcat("store", "rm", old, "--lost", "--yes")
    assert "nothing yet" not in cafcat("store", "ls").text
    assert f"{url_of(old)}  nothing now" in cafcat("store", "ls", "-v").text
