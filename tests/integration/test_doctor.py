"""What `doctor` finds. Each check is tried with a real fault."""

import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql as composed

import cafcat
from cafcat.operations.doctor.checks import CHECKS
from cafcat.operations.doctor.examination import Reach
from cafcat.operations.doctor.report import DoctorReport, Level
from tests.crash.postgres_proxy import PostgresProxy
from tests.worlds.catalog_world import commit, sql
from tests.worlds.places import Folder
from tests.worlds.recover_world import end_leases, leave_half
from tests.worlds.servers.services import Databases
from tests.worlds.servers.tls_server import tls_server
from tests.worlds.waiting import wait_until

NO_DATABASE = {check.name for check in CHECKS if check.needs > Reach.NOTHING}


def found(report: DoctorReport, check: str) -> list[tuple[Level, str]]:
    """Return level and text of each result of a check."""
    return [(result.level, result.found) for result in report.diagnoses if result.check == check]


def complaint(report: DoctorReport, check: str) -> str:
    """Return the text of the only result of a check that is not `ok`. It must come with a remedy."""
    [result] = [result for result in report.diagnoses if result.check == check and result.level is not Level.OK]
    assert result.remedy
    return f"{result.level}: {result.found}"


def remedy(report: DoctorReport, check: str) -> str:
    """Return the remedies of a check."""
    return "\n".join(result.remedy or "" for result in report.diagnoses if result.check == check)


def complaints(report: DoctorReport) -> set[str]:
    return {result.check for result in report.diagnoses if result.level is not Level.OK}


def pack(repository: cafcat.Repository, path: str = "a") -> None:
    """Pack a file as a command does, which also writes the marker of the store."""
    with repository.writer() as writer:
        writer.add(path, b"first")


def set_in_database(databases: Databases, url: str, setting: str) -> None:
    """Change a setting for all later connections to a database."""
    name = composed.Identifier(str(psycopg.conninfo.conninfo_to_dict(url)["dbname"]))
    with psycopg.connect(databases.superuser_url(url)) as connection:
        connection.execute(composed.SQL("ALTER DATABASE {} SET ").format(name) + composed.SQL(setting))  # type: ignore[arg-type]


@pytest.fixture
def proxy(databases: Databases) -> Iterator[PostgresProxy]:
    with PostgresProxy(databases.owner_conninfo) as proxy:
        yield proxy
        proxy.flowing.set()


def through(proxy: PostgresProxy, local: cafcat.Repository) -> str:
    """Return the URL of the repository's database, through a proxy."""
    url = str(local.settings.database_url)
    return proxy.url(str(psycopg.conninfo.conninfo_to_dict(url)["dbname"]))


def test_every_check_has_a_result_or_was_skipped(local: cafcat.Repository) -> None:
    commit(local, {"a": b"first"})
    report = local.doctor()
    assert {result.check for result in report.diagnoses} == {check.name for check in CHECKS}
    assert report.skipped == ()
    assert all((result.remedy is None) is (result.level is Level.OK) for result in report.diagnoses)
    assert all("\n" not in f"{result.found}{result.remedy}" for result in report.diagnoses)


def test_a_catalog_in_order_has_no_complaints_but_those_of_the_servers_of_tests(local: cafcat.Repository) -> None:
    """The servers of the tests keep nothing on disk, and run no autovacuum."""
    pack(local)
    local.backup()
    report = local.doctor()
    assert complaints(report) <= {"durability", "limits", "settings", "store space", "home space"}
    assert (Level.OK, "1 committed chunk with 1 file") in [
        (level, text.partition(";")[0]) for level, text in found(report, "catalog")
    ]


def test_chunks_without_a_copy_are_a_warning_if_others_have_one(local: cafcat.Repository, tmp_path: Path) -> None:
    pack(local)
    assert found(local.doctor(), "copies") == [(Level.OK, "1 chunk without a second copy (cafcat copy)")]
    local.copy(to=str(tmp_path / "second"))
    assert found(local.doctor(), "copies") == [(Level.OK, "0 chunks without a second copy (cafcat copy)")]
    pack(local, "b")
    report = local.doctor()
    assert complaint(report, "copies") == "warning: 1 chunk without a second copy, but 1 chunk has one"
    assert "cafcat query single-copy" in remedy(report, "copies")


def test_settings_of_the_server_that_lose_commits(local: cafcat.Repository) -> None:
    report = local.doctor()
    levels = {text.partition(" ")[0]: level for level, text in found(report, "durability")}
    if set(levels) == {"commits"}:
        pytest.skip("this server keeps its commits")
    assert levels == {"fsync": Level.ERROR, "synchronous_commit": Level.WARNING, "full_page_writes": Level.WARNING}
    assert not report.is_healthy


def test_limits_of_the_server(local: cafcat.Repository, databases: Databases) -> None:
    url = str(local.settings.database_url)
    for setting in (
        "statement_timeout = '30s'",
        "idle_in_transaction_session_timeout = '1s'",
        "default_transaction_read_only = on",
    ):
        set_in_database(databases, url, setting)
    texts = " ".join(text for level, text in found(local.doctor(), "limits") if level is not Level.OK)
    assert "statement_timeout is 30 s" in texts
    assert "idle_in_transaction_session_timeout is 1 s" in texts
    assert "default_transaction_read_only" in texts


def test_a_clock_that_is_wrong(local: cafcat.Repository, databases: Databases) -> None:
    """A function of the same name, before the real one in the search path, moves the clock of the server."""
    url = str(local.settings.database_url)
    assert found(local.doctor(), "clock")[0][0] is Level.OK
    with psycopg.connect(databases.superuser_url(url)) as connection:
        connection.execute("CREATE SCHEMA fake")
        connection.execute("GRANT USAGE ON SCHEMA fake TO PUBLIC")
    set_in_database(databases, url, "search_path = fake, pg_catalog, public")
    for minutes, level in ((1, "warning"), (-20, "error")):
        with psycopg.connect(databases.superuser_url(url)) as connection:
            connection.execute(
                "CREATE OR REPLACE FUNCTION fake.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS "
                f"'SELECT pg_catalog.clock_timestamp() + interval ''{minutes} minutes'''"
            )
        side = "ahead of" if minutes > 0 else "behind"
        text = complaint(local.doctor(), "clock")
        assert text.startswith(f"{level}: ")
        assert side in text


def test_a_connection_without_tls(local: cafcat.Repository, proxy: PostgresProxy) -> None:
    url = through(proxy, local)
    with cafcat.open(database_url=url, home=local.settings.home, store=local.settings.store) as repository:
        assert complaints(repository.doctor()).isdisjoint({"link"})
    elsewhere = url.replace("127.0.0.1", "0.0.0.0")  # noqa: S104 - this host by an address that could be any
    with cafcat.open(database_url=elsewhere, home=local.settings.home, store=local.settings.store) as repository:
        assert "is not encrypted" in complaint(repository.doctor(), "link")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is missing")
def test_certificates_of_the_server(tmp_path: Path) -> None:
    """It takes seconds to make a server with a certificate."""

    def link(parameters: str) -> tuple[str, str]:
        with cafcat.open(
            database_url=server.url + parameters, home=tmp_path, store=tmp_path / "store"
        ) as repository:
            [result] = [result for result in repository.doctor().diagnoses if result.check == "link"]
        return str(result.level), result.found

    with tls_server() as server:
        checked = f"&sslmode=verify-full&sslrootcert={server.certificate}"
        assert link(checked) == ("ok", "the connection to db.example uses TLS, with sslmode=verify-full")
        level, text = link("&sslmode=require")
        assert (level, "accepts any certificate" in text) == ("warning", True)
        level, text = link("&sslmode=disable")
        assert (level, "is not encrypted" in text) == ("warning", True)


@pytest.mark.parametrize(
    ("revision", "remedy"), [("0001", "run `cafcat db upgrade`"), ("9999", "install a newer cafcat")]
)
def test_a_schema_of_another_revision(local: cafcat.Repository, revision: str, remedy: str) -> None:
    sql(local, "UPDATE alembic_version SET version_num = %s", revision)
    report = local.doctor()
    [result] = [result for result in report.of(Level.ERROR) if result.check == "schema"]
    assert (result.check, result.remedy) == ("schema", remedy)
    assert set(report.skipped) == {check.name for check in CHECKS if check.needs >= Reach.CATALOG}


def test_a_database_without_a_schema(empty_database_url: str, tmp_path: Path) -> None:
    with cafcat.open(database_url=empty_database_url, home=tmp_path, store=tmp_path / "store") as repository:
        report = repository.doctor()
        assert "no cafcat schema" in complaint(report, "schema")
        assert sql(repository, "SELECT to_regclass('chunks') IS NULL") == [(True,)]


def test_a_database_that_does_not_answer(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"postgresql://user:hunter2@127.0.0.1:{closed.getsockname()[1]}/x"
    with cafcat.open(database_url=url, home=tmp_path, store=tmp_path / "store") as repository:
        report = repository.doctor()
    assert complaint(report, "database").startswith("error: no answer from the database")
    assert set(report.skipped) == NO_DATABASE
    assert not any("hunter2" in f"{result}" for result in report.diagnoses)


def test_a_database_that_is_silent_costs_a_limited_time(proxy: PostgresProxy, local: cafcat.Repository) -> None:
    proxy.flowing.clear()
    url = through(proxy, local)
    with cafcat.open(database_url=url, home=local.settings.home, store=local.settings.store) as repository:
        report = repository.doctor(timeout_seconds=1)
    assert complaint(report, "database") == "error: no answer within 2 s"
    assert set(report.skipped) == NO_DATABASE


def test_a_database_that_falls_silent_is_not_asked_again(proxy: PostgresProxy, local: cafcat.Repository) -> None:
    def stop(transaction: list[bytes]) -> None:
        if b"pg_settings" in transaction[-1]:
            proxy.flowing.clear()
            time.sleep(5)  # longer than the check

    proxy.cut = stop
    url = through(proxy, local)
    with cafcat.open(database_url=url, home=local.settings.home, store=local.settings.store) as repository:
        report = repository.doctor(timeout_seconds=1)
    assert complaint(report, "durability") == "error: no answer within 2 s"
    assert {"limits", "clock", "backup"} <= set(report.skipped)


def test_no_database_is_made(tmp_path: Path) -> None:
    with cafcat.open(home=tmp_path / "home", database_url=None) as repository:
        if repository.settings.database_url is not None:
            pytest.skip("CAFCAT_DATABASE_URL is set")
        report = repository.doctor()
    assert "there is no embedded database" in complaint(report, "database")
    assert report.is_healthy
    assert not (tmp_path / "home").exists()


def test_nothing_is_counted_file_by_file(proxy: PostgresProxy, local: cafcat.Repository) -> None:
    commit(local, {"a": b"first"})
    url = through(proxy, local)
    with cafcat.open(database_url=url, home=local.settings.home, store=local.settings.store) as repository:
        assert complaints(repository.doctor()).isdisjoint({"database", "catalog"})
    sent = {statement for statement in proxy.statements if "pg_class" not in statement}
    assert any("FROM chunks" in statement for statement in sent)
    assert not [
        statement for statement in sent if "file_locations" in statement or "retired_locations" in statement
    ]


def test_leftovers_of_dead_writers(local: cafcat.Repository) -> None:
    leave_half(local, {"a": b"first"})
    assert (
        "1 lease of writers at work, or dead for less than a quarter of an hour"
        in found(local.doctor(), "writers")[0][1]
    )
    end_leases(local)
    assert complaint(local.doctor(), "writers") == "warning: writers have died, and left unfinished: 1 chunk"
    sql(local, "UPDATE chunks SET state = 'abandoned', abandoned_at = now(), lease_expires_at = NULL")
    assert "perhaps still in a store: 1 chunk" in complaint(local.doctor(), "writers")


def test_runs_that_died(local: cafcat.Repository) -> None:
    commit(local, {"a": b"first"})
    assert found(local.doctor(), "runs")[0][0] is Level.OK
    [(owner,)] = sql(local, "SELECT owner FROM ingest_runs")
    dead = owner.rpartition("/")[0] + "/1]"  # a process with this id that started at another time
    sql(local, "UPDATE ingest_runs SET owner = %s", dead)
    assert complaint(local.doctor(), "runs") == "warning: the processes of these runs have died: run 1"


def test_shards_without_a_worker(local: cafcat.Repository) -> None:
    commit(local, {"a": b"first"})
    shard = "INSERT INTO shards (run_id, source_number, source, scope, state, lease_expires_at) VALUES "
    sql(local, shard + "(1, 0, 's', '', 'waiting', NULL)")
    assert found(local.doctor(), "shards")[0][0] is Level.OK  # its run is at work
    sql(local, "UPDATE ingest_runs SET state = 'failed', finished_at = now()")
    assert "wait for a worker, while no run is at work: 1" in complaint(local.doctor(), "shards")
    sql(local, shard + "(1, 0, 's', '', 'running', now() - interval '1 hour')")
    assert complaint(local.doctor(), "shards") == "warning: shards whose worker has died: 1"


def test_an_unfinished_change_of_the_layout(local: cafcat.Repository) -> None:
    assert found(local.doctor(), "layout") == [(Level.OK, "layout of the table of files: a plain table")]
    local.session.catalog.layout.begin(4)
    warning = "warning: a change of the table of files to 4 partitions is unfinished, in the phase copying"
    assert complaint(local.doctor(), "layout") == warning
    [remedy] = [result.remedy for result in local.doctor().diagnoses if result.check == "layout"]
    assert remedy == "continue an interrupted change with: cafcat db partition 4 --yes"


def test_journal_records_that_a_store_lacks(local: cafcat.Repository) -> None:
    commit(local, {"a": b"first"})
    sql(local, "UPDATE journal SET unwritten = ARRAY['file:///nowhere']")
    level, text, *_ = found(local.doctor(), "journal")[0]
    assert (level, text) == (Level.OK, "journal records that a store lacks, for less than a quarter of an hour: 1")
    sql(local, "UPDATE journal SET happened_at = now() - interval '1 hour'")
    assert complaint(local.doctor(), "journal") == "warning: journal records that a store lacks: 1"


def test_a_new_catalog_needs_no_statistics(local: cafcat.Repository) -> None:
    commit(local, {f"{number:05}": b"" for number in range(20_000)})
    rows = "SELECT n_live_tup FROM pg_stat_user_tables WHERE relname = 'file_locations'"
    wait_until(lambda: sql(local, rows)[0][0] == 20_000)  # the server counts with a delay
    assert "vacuum" not in complaints(local.doctor())


@pytest.mark.usefixtures("s3_environment")
def test_a_store_that_an_ingest_would_refuse(local: cafcat.Repository, tmp_path: Path) -> None:
    missing = {
        str(tmp_path / "no folder" / "chunks"): "there is no folder",
        f"s3://missing-{uuid4()}/chunks": "NoSuchBucket",
    }
    for store, message in missing.items():
        url = local.settings.database_url
        with cafcat.open(database_url=url, home=tmp_path / "home", store=store) as repository:
            errors = [text for level, text in found(repository.doctor(), "stores") if level is Level.ERROR]
        assert message in "".join(errors)


def test_a_store_whose_journal_was_removed(local: cafcat.Repository, folder: Folder) -> None:
    pack(local)
    assert "stores" not in complaints(local.doctor())
    (Path(folder.folder) / "journal").rename(Path(folder.folder) / "away")
    assert "lacks its journal record journal/0" in complaint(local.doctor(), "stores")


def test_a_store_whose_journal_lacks_the_last_removal(local: cafcat.Repository, folder: Folder) -> None:
    pack(local)
    local.rm(["a"])
    assert "stores" not in complaints(local.doctor())
    removal = max((Path(folder.folder) / "journal").iterdir())
    removal.unlink()
    assert f"lacks its journal record journal/{removal.name}" in complaint(local.doctor(), "stores")


def test_a_catalog_restored_from_a_backup_that_is_older_than_a_prune(
    local: cafcat.Repository, databases: Databases, folder: Folder, tmp_path: Path
) -> None:
    """The journal is complete, and the files of the missing chunk are in a newer one."""
    commit(local, {"a": b"first", "b": b"second"})
    local.backup()
    local.rm(["a"])
    local.repack()
    local.prune(grace_seconds=0)
    with (
        databases.fresh(databases.template()) as url,
        cafcat.open(database_url=url, home=tmp_path / "other", store=folder.url) as restored,
    ):
        assert restored.restore().newer_records
        assert "lacks 2 later changes, which cafcat rebuild" in found(restored.doctor(), "backup")[0][1]
        restored.verify()
        assert "stores" not in complaints(restored.doctor())
        repaired = restored.repair()
        assert (repaired.files_lost, repaired.lacking_changes) == (2, 2)
        message = "the catalog was restored from a backup that lacks 2 later changes"
        assert complaint(restored.doctor(), "damage") == f"error: found damaged or missing: 1 chunk; {message}"
        rebuild = "missing files may be in newer chunks: run cafcat rebuild with an empty catalog; else run: "
        assert remedy(restored.doctor(), "damage").startswith(rebuild)


def test_verifications_that_are_late(local: cafcat.Repository) -> None:
    commit(local, {"a": b"first"})
    assert found(local.doctor(), "verification") == [(Level.OK, "1 chunk never verified at level data")]
    sql(local, "UPDATE chunks SET committed_at = now() - interval '100 days'")
    assert "never verified at level data: 1 chunk, the oldest 100 days" in complaint(local.doctor(), "verification")
    local.verify(level="index")
    assert "never verified at level data: 1 chunk" in complaint(local.doctor(), "verification")
    local.verify(level="data")
    assert found(local.doctor(), "verification") == [
        (Level.OK, "all chunks verified at level data in the last 90 days")
    ]
    second = "1 chunk never verified at level data; all others verified in the last 90 days"
    commit(local, {"b": b"second"})
    assert found(local.doctor(), "verification") == [(Level.OK, second)]
    local.verify(level="data")
    sql(local, "UPDATE verifications SET finished_at = now() - interval '200 days'")
    assert "was 200 days ago" in complaint(local.doctor(), "verification")


def test_damage_that_was_found_and_repaired(local: cafcat.Repository, folder: Folder) -> None:
    chunk = commit(local, {"a": b"first"})
    file = folder.folder / f"{chunk}.caf"
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"first", b"worst"))
    local.verify(level="data")
    assert complaint(local.doctor(), "damage") == "error: found damaged or missing: 1 chunk"
    file.write_bytes(whole)
    local.verify(level="data")
    assert found(local.doctor(), "damage") == [(Level.OK, "no known damage")]


def test_damage_that_no_live_file_needs_is_a_warning(local: cafcat.Repository, folder: Folder) -> None:
    """`verify` ends with 0 for this chunk. Once undelete brings the file back, the damage counts."""
    chunk = commit(local, {"a": b"first", "b": b"second"})
    file = folder.folder / f"{chunk}.caf"
    whole = file.read_bytes()
    local.rm(["a"])
    file.write_bytes(whole.replace(b"first", b"worst"))
    assert local.verify(level="data").unneeded == 1
    warned = "warning: damaged where no live file is: 1 chunk; removed files there may be damaged"
    assert complaint(local.doctor(), "damage") == warned
    assert local.undelete(["a"]).files_damaged == 1
    assert complaint(local.doctor(), "damage") == "error: found damaged or missing: 1 chunk"


def test_the_age_of_the_backup(local: cafcat.Repository) -> None:
    assert found(local.doctor(), "backup") == [(Level.OK, "nothing to back up")]
    commit(local, {"a": b"first"})
    assert "has no backup" in complaint(local.doctor(), "backup")
    local.backup()
    sql(local, "UPDATE backups SET committed_at = now() - interval '30 days'")
    assert found(local.doctor(), "backup")[0][0] is Level.OK  # nothing has changed since
    commit(local, {"b": b"second"})
    assert "the last backup is 30 days old; 1 change since" in complaint(local.doctor(), "backup")


def test_a_store_whose_disk_is_not_mounted(local: cafcat.Repository, folder: Folder) -> None:
    pack(local)
    assert "has the marker of this catalog" in found(local.doctor(), "stores")[0][1]
    folder.folder.rename(folder.folder.with_name("elsewhere"))
    assert "its folder does not exist" in complaint(local.doctor(), "stores")
    folder.folder.mkdir()
    text = complaint(local.doctor(), "stores")
    assert text.startswith("error: ")
    assert "it is empty" in text


def test_a_store_that_was_given_up_is_no_error(local: cafcat.Repository, folder: Folder, tmp_path: Path) -> None:
    commit(local, {"a": b"first"})
    with cafcat.open(database_url=local.settings.database_url, home=tmp_path, store=str(tmp_path / "new")) as other:
        other.ingest([Path(__file__)])
        shutil.rmtree(folder.folder)
        report = other.doctor()
        assert complaint(report, "stores").startswith("error: ")
        assert not any(str(folder.folder) in text for _, text in found(report, "store space"))
        other.lose_store(folder.url)
        assert "stores" not in complaints(other.doctor())


def test_a_folder_of_another_store(local: cafcat.Repository, folder: Folder, tmp_path: Path) -> None:
    """The catalog has two stores, and one of the folders was mounted in the place of the other."""
    pack(local)
    local.copy(to=str(tmp_path / "second"))
    shutil.rmtree(folder.folder)
    shutil.copytree(tmp_path / "second", folder.folder)
    said = complaint(local.doctor(), "stores")
    assert f"{folder.url} is a copy of {(tmp_path / 'second').as_uri()}" in said
    [marker] = (Path(folder.folder) / "catalogs").iterdir()
    marker.unlink()
    pack(local, "b")
    assert marker.exists()
    assert "stores" not in complaints(local.doctor())


def test_a_store_of_which_only_the_marker_is_left(local: cafcat.Repository, folder: Folder, tmp_path: Path) -> None:
    """The store was given up, and the marker at its place has another UUID."""
    pack(local)
    sql(local, "UPDATE stores SET uuid = gen_random_uuid()")
    with cafcat.open(database_url=local.settings.database_url, home=tmp_path, store=str(tmp_path / "new")) as other:
        other.ingest([Path(__file__)])
        assert "is another store than the catalog has there" in complaint(other.doctor(), "stores")
        for chunk in Path(folder.folder).glob("*.caf"):
            chunk.unlink()
        other.lose_store(folder.url)
        assert "stores" not in complaints(other.doctor())


def test_a_store_of_another_catalog(local: cafcat.Repository, databases: Databases) -> None:
    pack(local)
    settings = local.settings
    with (
        databases.fresh(databases.template()) as url,
        cafcat.open(database_url=url, home=settings.home, store=settings.store) as other,
    ):
        assert "belongs to another catalog" in complaint(other.doctor(), "stores")


def test_a_store_is_not_called_that_of_another_catalog_without_a_database(local: cafcat.Repository) -> None:
    pack(local)
    settings = local.settings
    url = "postgresql:///none?host=/nowhere"
    with cafcat.open(database_url=url, home=settings.home, store=settings.store) as other:
        report = other.doctor()
    catalog = local.session.catalog.identities.of("").catalog
    assert f"has objects of the catalog {catalog}; no database answers" in found(report, "stores")[0][1]
    assert "stores" not in complaints(report)


def test_a_server_of_a_store_that_is_silent_costs_a_limited_time(
    local: cafcat.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = tmp_path / "cafcat.toml"
        config.write_text(
            f'[stores.silent]\nurl = "s3://silent/x"\nendpoint_url = "http://127.0.0.1:{silent.getsockname()[1]}"\n'
        )
        url = local.settings.database_url
        with cafcat.open(config=config, database_url=url, home=tmp_path, store="silent") as repository:
            report = repository.doctor(timeout_seconds=1)
    assert complaint(report, "stores") == "error: the store s3://silent/x: no answer within 1 s"


def test_failed_checks_of_a_server_are_shown(local: cafcat.Repository) -> None:
    pack(local)
    sql(local, """UPDATE stores SET checks = '{"failed": ["entity_tag"]}'""")
    assert "lacks features: entity_tag" in complaint(local.doctor(), "stores")


def test_space_for_one_chunk(local: cafcat.Repository) -> None:
    settings = local.settings
    free = shutil.disk_usage(settings.home.parent).free
    for target_size, level in ((free * 2, Level.WARNING), (1000, Level.OK)):
        with cafcat.open(
            database_url=settings.database_url, home=settings.home, store=settings.store, target_size=target_size
        ) as repository:
            assert [level for level, _ in found(repository.doctor(), "store space")] == [level]


def test_settings_without_effect(local: cafcat.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAFCAT_STROE", "/srv")
    config = tmp_path / "cafcat.toml"
    config.write_text("max_staleness = 5\ndatabase_url = 'postgresql://user:secret@127.0.0.1:9/x'\n")
    config.chmod(0o644)
    home = tmp_path / "home"
    with cafcat.open(config=config, home=home, store=home / "postgres" / "chunks") as repository:
        report = repository.doctor()
    assert "CAFCAT_STROE has no effect" in complaint(report, "environment")
    assert "other users may read it" in complaint(report, "secrets")
    texts = " ".join(text for _, text in found(report, "settings"))
    assert "max_staleness has no effect" in texts
    assert "inside the data of the embedded database" in texts
    config.chmod(0o600)
    monkeypatch.delenv("CAFCAT_STROE")
    monkeypatch.setenv("CAFCAT_NATIVE", "1")
    monkeypatch.setenv("CAFCAT_BUILD", "none")
    with cafcat.open(config=config, home=home) as repository:
        assert complaints(repository.doctor()).isdisjoint({"environment", "secrets"})


def test_tables_that_nobody_vacuums(local: cafcat.Repository) -> None:
    """Statistics of the server: rows that were deleted and not vacuumed, as the tests' servers never do."""

    def delete_rows() -> None:
        sql(local, "INSERT INTO events (kind) SELECT 'x' FROM generate_series(1, 60000)")
        sql(local, "DELETE FROM events")

    delete_rows()
    server = local.session.catalog.server
    wait_until(lambda: any(table.dead_rows >= 60_000 for table in server.tables(60_000)))
    assert "vacuum" not in complaints(local.doctor())  # the table is small
    delete_rows()
    wait_until(lambda: "vacuum" in complaints(local.doctor()))
    report = local.doctor()
    assert "of the rows of events are dead" in complaint(report, "vacuum")
    assert "autovacuum does so by itself, also in the embedded database" in remedy(report, "vacuum")


def test_a_transaction_that_is_open_for_hours(local: cafcat.Repository) -> None:
    """The age comes from the server, so the limit is moved instead of the time."""
    with psycopg.connect(str(local.settings.database_url)) as held:
        held.execute("SELECT 1")
        ages = local.session.catalog.server.transactions()
    assert ages.oldest_seconds is not None
    assert 0 < ages.frozen < ages.freeze_limit
