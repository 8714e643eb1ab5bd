"""The fixtures that other tests use."""

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tests.worlds.servers.services import url_of


def test_fresh_database_is_empty_and_separate(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url) as connection:
        connection.execute("CREATE TABLE only_here (id int)")
        (count,) = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
        assert count == 1


def test_the_second_server_is_another_version(empty_database_url_15: str, empty_database_url: str) -> None:
    versions = []
    for url in (empty_database_url, empty_database_url_15):
        with psycopg.connect(url) as connection:
            versions.append(connection.info.server_version // 10000)
    assert versions[0] != versions[1] >= 14


def test_url_keeps_the_keywords_of_the_conninfo() -> None:
    url = url_of("host='/tmp/a b' user=me password='p@ss/w ord' dbname=old options=''", "new db")
    assert conninfo_to_dict(url) == {"host": "/tmp/a b", "user": "me", "password": "p@ss/w ord", "dbname": "new db"}
