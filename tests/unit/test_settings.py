import os
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cafcat.catalog.database_url import has_secret
from cafcat.errors import AccessDenied, InvalidInput, Unsupported
from cafcat.settings.settings import NamedStore, Settings, redact
from cafcat.settings.stores import redact_store_url
from tests.worlds.normal_user import as_normal_user

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_config(text: str) -> Path:
        (tmp_path / "cafcat.toml").write_text(text)
        return tmp_path / "cafcat.toml"

    return write_config


def test_a_home_of_another_user_is_refused_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir(mode=0)
    with as_normal_user(), pytest.raises(AccessDenied, match="cannot be read: Permission denied") as caught:
        Settings.load(environ={}, home=tmp_path / "private" / "home")
    assert (
        caught.value.hint
        == "run cafcat as the owner of this home, or choose another one with --home or CAFCAT_HOME"
    )


@pytest.mark.parametrize(
    ("url", "has"),
    [
        ("postgresql://user@host/name", False),
        ("postgresql://user:secret@host/name", True),
        ("postgresql://user@host/name?passw%6Frd=secret", True),
        ("host=db user=u", False),
        ("host=db user=u password=ab://cd", True),
        ("host=db options='-c x=a://b' password=secret", True),
        ("host=db sslpassword=secret", True),
        ("host=db password", True),
    ],
)
def test_a_password_is_recognized(url: str, has: bool) -> None:
    assert has_secret(url) is has
    if "%6F" not in url:
        assert "secret" not in redact(url)
        assert "ab://cd" not in redact(url)


def test_defaults(tmp_path: Path) -> None:
    settings = Settings.load(environ={"CAFCAT_HOME": str(tmp_path)})
    assert settings.home == tmp_path
    assert settings.database_url is None
    assert settings.read_database_url is None
    assert settings.max_staleness == 60
    assert settings.store == str(tmp_path / "chunks")
    assert settings.target_size == 30_000_000_000
    assert settings.upload_memory == 256_000_000
    assert settings.read_requests == 64
    assert settings.prepared_statements is True
    assert settings.lock_timeout is None
    assert settings.stores == {}
    assert settings.options_of("s3://bucket/prefix") == {}
    assert settings.origins == {
        "home": "environment CAFCAT_HOME",
        "database_url": "default",
        "read_database_url": "default",
        "max_staleness": "default",
        "store": "default",
        "target_size": "default",
        "upload_memory": "default",
        "read_requests": "default",
        "prepared_statements": "default",
        "lock_timeout": "default",
        "bandwidth": "default",
        "tracing": "default",
        "config": str(tmp_path / "cafcat.toml"),
    }


def test_the_home_of_last_resort_is_the_users_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    home = Settings.load(environ={}).home
    assert home.is_absolute()
    assert home.is_relative_to(tmp_path)
    assert home.name == "cafcat"


def test_flags_win_over_environment_over_file_over_defaults(write: Write, tmp_path: Path) -> None:
    file = write('target_size = "1MB"\nstore = "/of/file"\ndatabase_url = "postgresql:///file"\n')
    environ = {"CAFCAT_CONFIG": str(file), "CAFCAT_STORE": "/of/environment", "CAFCAT_TARGET_SIZE": "2MB"}
    settings = Settings.load(environ=environ, home=tmp_path, target_size="3MB")
    assert (settings.target_size, settings.store) == (3_000_000, "/of/environment")
    assert settings.database_url == "postgresql:///file"
    assert settings.origins == {
        "home": "flag",
        "database_url": f"file {file}: database_url",
        "read_database_url": "default",
        "max_staleness": "default",
        "store": "environment CAFCAT_STORE",
        "target_size": "flag",
        "upload_memory": "default",
        "read_requests": "default",
        "prepared_statements": "default",
        "lock_timeout": "default",
        "bandwidth": "default",
        "tracing": "default",
        "config": str(file),
    }


def test_the_file_of_the_home_is_read_without_being_named(write: Write, tmp_path: Path) -> None:
    write("target_size = 4000\n")
    assert Settings.load(environ={}, home=tmp_path).target_size == 4000


def test_a_named_file_is_read_instead_of_that_of_the_home(write: Write, tmp_path: Path) -> None:
    write("target_size = 4000\n")
    other = tmp_path / "other.toml"
    other.write_text("target_size = 5000\n")
    environ = {"CAFCAT_CONFIG": str(write("target_size = 4000\n"))}
    assert Settings.load(environ=environ, home=tmp_path, config=other).target_size == 5000


def test_a_profile_overrides_the_keys_above_it(write: Write) -> None:
    file = write('target_size = 1000\nstore = "/a"\n[profiles.big]\ntarget_size = "1GB"\n[profiles.empty]\n')
    assert Settings.load(environ={}, config=file).target_size == 1000
    big = Settings.load(environ={"CAFCAT_PROFILE": "big"}, config=file)
    assert (big.target_size, big.store) == (1_000_000_000, "/a")
    assert big.origins["target_size"] == f"file {file}: profiles.big.target_size"
    assert Settings.load(environ={"CAFCAT_PROFILE": "big"}, config=file, profile="empty").target_size == 1000


@pytest.mark.parametrize(
    ("text", "profile", "message"),
    [
        (
            "sotre = '/x'",
            None,
            "unknown key sotre .*; keys are home, database_url, read_database_url, max_staleness, store",
        ),
        ("[profiles.a]\nhme = '/x'", None, "unknown key profiles.a.hme"),
        ("[profiles.a]\n", "b", "no profile 'b' .*; profiles in this file: a"),
        ("", "b", "profiles in this file: none"),
        ("profiles = 3", None, "not tables"),
        ("store = 3", None, "store .* must be a text"),
        ("store = ''", None, "store .* must be a text"),
        ('home = "/a\\u0000b"', None, "home .* must be a text"),
        ("target_size = true", None, "target_size .* number of bytes"),
        ("target_size = 1.5", None, "target_size .* number of bytes"),
        ("target_size = -1", None, "target_size .* not a size"),
        ("target_size = 0", None, "target_size .* more than 0"),
        ("upload_memory = true", None, "upload_memory .* number of bytes"),
        ("upload_memory = '15.9MB'", None, r"upload_memory .* at least 16000000 bytes \(16.0 MB\), not 15900000"),
        ("target_size = 'big'", None, r"target_size \(file .*: target_size\): not a size: 'big'"),
        ("home = ", None, "not TOML"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name(write: Write, text: str, profile: str | None, message: str) -> None:
    file = write(text)
    with pytest.raises(InvalidInput, match=message) as caught:
        Settings.load(environ={}, config=file, profile=profile)
    assert str(file) in str(caught.value)


def test_given_configuration_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot read the configuration"):
        Settings.load(environ={}, config=tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"home = '\xe9'")
    with pytest.raises(InvalidInput, match="not TOML"):
        Settings.load(environ={}, config=tmp_path / "latin.toml")
    with pytest.raises(InvalidInput, match="profile 'a' needs"):
        Settings.load(environ={}, home=tmp_path, profile="a")


def test_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/somebody")
    settings = Settings.load(environ={"CAFCAT_STORE": "../chunks"}, home="here")
    assert settings.home == tmp_path / "here"
    assert settings.store == str(tmp_path.parent / "chunks")
    assert Settings.load(environ={}, home="~/here").home == Path("/home/somebody/here")
    assert Settings.load(environ={}, home="here", store="s3://bucket/a/../b").store == "s3://bucket/a/../b"


def test_paths_in_a_file_are_relative_to_it(write: Write, tmp_path: Path) -> None:
    settings = Settings.load(environ={}, config=write('home = "h"\nstore = "s"'))
    assert (settings.home, settings.store) == (tmp_path / "h", str(tmp_path / "s"))


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    environ = {"CAFCAT_DATABASE_URL": "", "CAFCAT_CONFIG": "", "CAFCAT_PROFILE": ""}
    settings = Settings.load(environ=environ, home=tmp_path)
    assert settings.database_url is None
    assert settings.origins["database_url"] == "default"


def test_an_empty_flag_is_a_mistake(tmp_path: Path) -> None:
    for name in ("home", "store", "database_url"):
        with pytest.raises(InvalidInput, match=rf"{name} \(flag\)"):
            Settings.load(environ={"CAFCAT_HOME": str(tmp_path)}, **{name: ""})


def test_a_setting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no such setting: colour"):
        Settings.load(environ={}, colour="red")


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("postgresql://u:p@h:5432/d", "postgresql://u:p@h:5432/d"),
        ("postgres:///d?host=/run", "postgres:///d?host=/run"),
        ("postgresql+psycopg://u@h/d", "postgresql://u@h/d"),
        ("postgres+asyncpg://u@h/d", "postgres://u@h/d"),
        (" host=/run dbname=d ", "host=/run dbname=d"),
        ("dbname = d password='a://b'", "dbname = d password='a://b'"),
    ],
)
def test_database_urls_are_libpqs(tmp_path: Path, given: str, url: str) -> None:
    assert Settings.load(environ={}, home=tmp_path, database_url=given).database_url == url


@pytest.mark.parametrize("given", ["mysql://u:secret@h/d", "u:secret@h", "secret", "postgresql:/secret"])
def test_invalid_database_url_is_refused_and_not_shown(tmp_path: Path, given: str) -> None:
    with pytest.raises(InvalidInput, match=r"environment CAFCAT_DATABASE_URL\) is not a Postgres URL") as caught:
        Settings.load(environ={"CAFCAT_DATABASE_URL": given}, home=tmp_path)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:secret@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        ("postgresql:///d?host=/run", "postgresql:///d?host=/run"),
        ("postgresql://h/d?user=u&password=secret&host=x", "postgresql://h/d?user=u&password=***&host=x"),
        ("postgresql://u:secret@h/d?sslpassword=secret", "postgresql://u:***@h/d?sslpassword=***"),
        ("postgresql://u:se/cr@secret@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:?secret@h/d", "postgresql://u:***@h/d"),
        ("postgresql://:secret@h/d", "postgresql://:***@h/d"),
        ("host=h password=secret user=u", "host=h password=*** user=u"),
        (r"host=h password='a \' secret' user=u", "host=h password=*** user=u"),
        (r"password = se\ secret user=u", "password = *** user=u"),
        ("password='secret", "password=***"),
        ("password=sec'ret x=1", "password=*** x=1"),
    ],
)
def test_passwords_are_not_shown(url: str, shown: str) -> None:
    assert redact(url) == shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://key:secret@bucket/x", "s3://***@bucket/x"),
        ("S3://secret@bucket/x", "S3://***@bucket/x"),
        ("s3://key:se/cr@secret@bucket/x", "s3://***@bucket/x"),
        ("s3://key:?secret\nsecret@bucket/x", "s3://***@bucket/x"),
        ("other://key:secret@host/x", "other://***@host/x"),
        ("s3://bucket/of@somebody", "s3://bucket/of@somebody"),
        ("/srv/chunks", "/srv/chunks"),
        ("/srv/a://b@c", "/srv/a://b@c"),
    ],
)
def test_the_user_of_a_store_url_is_not_shown(url: str, shown: str) -> None:
    assert redact_store_url(url) == shown


def test_the_representation_of_settings_shows_no_password(tmp_path: Path) -> None:
    settings = Settings.load(environ=os.environ, home=tmp_path, database_url="postgresql://u:secret@h/d")
    assert "secret" not in repr(settings)


@pytest.mark.parametrize(
    ("text", "value"), [("false", False), ('"FALSE"', False), ("true", True), ('"True"', True)]
)
def test_prepared_statements_are_a_matter_of_yes_or_no(write: Write, text: str, value: bool) -> None:
    assert Settings.load(environ={}, config=write(f"prepared_statements = {text}\n")).prepared_statements is value
    environ = {"CAFCAT_PREPARED_STATEMENTS": text.strip('"')}
    assert Settings.load(environ=environ).prepared_statements is value
    for wrong in ("0", '"off"'):
        with pytest.raises(InvalidInput, match=r"prepared_statements \(file .*\) must be"):
            Settings.load(environ={}, config=write(f"prepared_statements = {wrong}\n"))


def test_read_requests_are_a_whole_number(write: Write) -> None:
    file = write("read_requests = 128\n")
    assert Settings.load(environ={}, config=file).read_requests == 128
    environ = {"CAFCAT_READ_REQUESTS": "1"}
    settings = Settings.load(environ=environ, config=file)
    assert (settings.read_requests, settings.origins["read_requests"]) == (1, "environment CAFCAT_READ_REQUESTS")
    assert Settings.load(environ=environ, config=file, read_requests=1000).read_requests == 1000
    for wrong in ("0", "1001", "-1", "1.5", "true", "'many'", "''"):
        with pytest.raises(InvalidInput, match=r"read_requests \(file .*\) must be a whole number from 1 to 1000"):
            Settings.load(environ={}, config=write(f"read_requests = {wrong}\n"))


def test_upload_memory_comes_from_everywhere_too(write: Write) -> None:
    file = write('upload_memory = "20MB"\n[profiles.big]\nupload_memory = "1GB"\n')
    assert Settings.load(environ={}, config=file).upload_memory == 20_000_000
    assert Settings.load(environ={}, config=file, profile="big").upload_memory == 1_000_000_000
    environ = {"CAFCAT_UPLOAD_MEMORY": "16MB"}
    settings = Settings.load(environ=environ, config=file)
    assert (settings.upload_memory, settings.origins["upload_memory"]) == (
        16_000_000,
        "environment CAFCAT_UPLOAD_MEMORY",
    )
    assert Settings.load(environ=environ, config=file, upload_memory=17_000_000).upload_memory == 17_000_000
    with pytest.raises(InvalidInput, match=r"upload_memory \(environment CAFCAT_UPLOAD_MEMORY\) must be at least"):
        Settings.load(environ={"CAFCAT_UPLOAD_MEMORY": "15999999"})


STORES = """
[stores.archive]
url = "s3://bucket/prefix/"
endpoint_url = "https://s3.example.org:9000/"
region = "eu-central-1"
profile = "archivist"
addressing = "path"
[stores.bare]
url = "S3://other"
[stores.old]
url = "chunks"
[stores.as-url]
url = "file:///srv/chunks"
"""
ARCHIVE = {
    "endpoint_url": "https://s3.example.org:9000",
    "region": "eu-central-1",
    "profile": "archivist",
    "addressing": "path",
}


def test_stores_have_names(write: Write, tmp_path: Path) -> None:
    file = write(STORES)
    settings = Settings.load(environ={}, config=file)
    assert settings.stores == {
        "archive": NamedStore("archive", "s3://bucket/prefix", ARCHIVE),
        "bare": NamedStore("bare", "s3://other"),
        "old": NamedStore("old", str(tmp_path / "chunks")),
        "as-url": NamedStore("as-url", "file:///srv/chunks"),
    }
    assert settings.origins["stores.archive"] == f"file {file}: stores.archive"
    assert settings.origins["store"] == "default"
    assert hash(settings) == hash(Settings.load(environ={}, config=file))


def test_a_store_is_chosen_by_name_wherever_it_may_be_named(write: Write) -> None:
    file = write('store = "old"\n[profiles.p]\nstore = "bare"\n' + STORES)
    assert Settings.load(environ={}, config=file).store == str(file.parent / "chunks")
    assert Settings.load(environ={}, config=file, profile="p").store == "s3://other"
    settings = Settings.load(environ={"CAFCAT_STORE": "archive"}, config=file)
    assert (settings.store, settings.origins["store"]) == ("s3://bucket/prefix", "environment CAFCAT_STORE")
    assert Settings.load(environ={"CAFCAT_STORE": "archive"}, config=file, store="bare").store == "s3://other"


def test_a_name_wins_over_a_folder_that_is_called_so(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(STORES)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "archive").mkdir()
    assert Settings.load(environ={}, config=file, store="archive").store == "s3://bucket/prefix"
    for folder in ("./archive", "archive/", str(tmp_path / "archive"), Path("archive")):
        assert Settings.load(environ={}, config=file, store=folder).store == str(tmp_path / "archive")
    assert Settings.load(environ={}, config=file, store="archiv").store == str(tmp_path / "archiv")


@pytest.mark.parametrize(
    ("url", "region"),
    [
        ("s3://bucket/a", "a"),
        ("s3://bucket/a/", "a"),
        ("S3://bucket/a", "a"),
        ("s3://bucket/a/x/y.caf", "a"),
        ("s3://bucket/a//x", "a"),
        ("s3://bucket/a/b", "b"),
        ("s3://bucket/a/b/c", "b"),
        ("s3://bucket/a/bc", "a"),
        ("s3://bucket/a2", None),
        ("s3://bucket", None),
        ("s3://bucket2/a", None),
        ("s3://whole", "whole"),
        ("s3://whole/", "whole"),
        ("s3://whole/x", "whole"),
        ("s3://whole2", None),
        ("s3://whole.example", None),
        ("/bucket/a", None),
        ("file:///bucket/a", None),
    ],
)
def test_options_come_from_the_longest_matching_store_url(write: Write, url: str, region: str | None) -> None:
    text = "".join(
        f'[stores.{name}]\nurl = "{url}"\nregion = "{name}"\n'
        for name, url in {"b": "s3://bucket/a/b", "a": "s3://bucket/a", "whole": "s3://whole"}.items()
    )
    assert Settings.load(environ={}, config=write(text)).options_of(url) == ({"region": region} if region else {})


@pytest.mark.parametrize("addressing", ["auto", "path", "virtual"])
def test_addressing_is_one_of_three(write: Write, addressing: str) -> None:
    file = write(f'[stores.a]\nurl = "s3://bucket"\naddressing = "{addressing}"')
    assert Settings.load(environ={}, config=file).stores["a"].options == {"addressing": addressing}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stores = 3", "stores in .* are not tables"),
        ("stores.a = 's3://b'", "stores in .* are not tables"),
        ("[[stores]]\nurl = 's3://b'", "stores in .* are not tables"),
        ("[stores.a]", "stores.a in .* has no url"),
        ("[stores.a]\nregion = 'eu'", "stores.a in .* has no url"),
        ("[stores.a]\nurl = ''", r"url \(file .*: stores.a.url\) must be a text"),
        ("[stores.a]\nurl = 3", r"url \(file .*: stores.a.url\) must be a text"),
        ("[stores.a]\nurl = 's3://'", r"url \(file .*: stores.a.url\) is not s3://BUCKET"),
        ("[stores.a]\nurl = 's3://b'\nbucket = 'x'", "unknown key stores.a.bucket .* keys are url, endpoint_url"),
        ("[stores.a]\nurl = 's3://b'\nregion = 3", r"region \(file .*: stores.a.region\) must be a text"),
        ("[stores.a]\nurl = 's3://b'\nprofile = ''", r"profile \(file .*: stores.a.profile\) must be a text"),
        ("[stores.a]\nurl = 's3://b'\nendpoint_url = 1", r"endpoint_url \(file .*\) must be a text"),
        ("[stores.a]\nurl = 's3://b'\naddressing = 'Path'", r"stores.a.addressing\) .* auto, path, virtual, not"),
        ("[stores.a]\nurl = '/srv'\nregion = 'x'", r"unknown key stores.a.region in .*; keys are url"),
        (
            "[stores.a]\nurl = 'file:///srv'\naddressing = 'auto'",
            r"unknown key stores.a.addressing in .*; keys are url",
        ),
        ("[stores.'a/b']\nurl = 's3://b'", "not a name for a store in .*: 'a/b'"),
        ("[stores.'']\nurl = 's3://b'", "not a name for a store"),
        ("[stores.'..']\nurl = 's3://b'", "not a name for a store"),
        ("[stores.'s3://b']\nurl = 's3://b'", "not a name for a store"),
        ("[profiles.p.stores.a]\nurl = 's3://b'", r"profiles.p.stores in .*; .* write \[stores.NAME\]"),
    ],
)
def test_a_wrong_store_is_refused_with_file_and_key(write: Write, text: str, message: str) -> None:
    file = write(text)
    with pytest.raises(InvalidInput, match=message) as caught:
        Settings.load(environ={}, config=file)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("s3://bucket/a", "s3://bucket/a"),
        ("s3://bucket/a", "S3://bucket/a//"),
        ("s3://bucket/a", "s3://bucket//a"),
        ("s3://bucket", "s3://bucket/"),
        ("/srv/chunks", "/srv/x/../chunks/"),
        ("/srv/my chunks", "file:///srv/my%20chunks/"),
        ("file:///srv/chunks", "FILE://localhost/srv/chunks"),
        ("file:///srv/chunks", "file:/srv/chunks/"),
    ],
)
def test_two_names_for_one_url_are_refused(write: Write, first: str, second: str) -> None:
    file = write(f'[stores.one]\nurl = "{first}"\n[stores.more]\nurl = "s3://m"\n[stores.two]\nurl = "{second}"')
    with pytest.raises(InvalidInput, match=r"stores\.one and stores\.two in .* have the same url"):
        Settings.load(environ={}, config=file)


def test_names_of_different_urls_may_differ_only_in_case(write: Write) -> None:
    file = write(
        '[stores.a]\nurl = "s3://bucket/a"\n[stores.A]\nurl = "s3://bucket/A"\n[stores."a.b"]\nurl = "/a"\n'
    )
    assert set(Settings.load(environ={}, config=file).stores) == {"a", "A", "a.b"}


def refusal(**given: Any) -> str:
    """Return the text of a refusal, with its traceback as `--debug` prints it."""
    with pytest.raises(InvalidInput) as caught:
        Settings.load(**given)
    causes = traceback.format_exception(caught.value.__cause__) if caught.value.__cause__ else []
    return str(caught.value) + "".join(causes)


@pytest.mark.parametrize(
    "url",
    [
        "s3://key:hunter2@bucket/x",
        "s3://hunter2@bucket",
        "s3://key:hun/ter2@bucket/hunter2",
        "S3://key:hunter2@bucket",
        " s3://key:hunter2@bucket",
        "s3:/hunter2",
        "s3:hunter2",
        "s3:///hunter2",
        "s3://-hunter2",
        "s3://bucket/x?X-Amz-Signature=hunter2",
        "s3://bucket?secret=hunter2",
        "s3://bucket/x#hunter2",
        "s3://bucket/hunter2\n",
        "s3://bucket/hunter2\udcff",
        "http://key:hunter2@server/x",
        "http://key:hun/ter2@server/hunter2",
        "file://hunter2@server/x",
    ],
)
def test_a_url_that_may_hold_a_secret_is_refused_without_showing_it(write: Write, tmp_path: Path, url: str) -> None:
    shown = refusal(environ={"CAFCAT_STORE": url}, home=tmp_path)
    assert "store (environment CAFCAT_STORE)" in shown
    assert "hunter2" not in shown
    if url.isprintable():
        shown = refusal(environ={}, config=write(f"[stores.a]\nurl = '{url}'"))
        assert "stores.a.url" in shown
        assert "hunter2" not in shown


@pytest.mark.parametrize(
    "url",
    [
        "s3://my.bucket_1",
        "s3://b/x@y",
        "s3://b/a b/ü",
        "s3://b/100%",
        "s3://b/a:b",
        "file:///a/x@y:z",
        "file:///a:b@c",
    ],
)
def test_odd_names_are_no_secrets(tmp_path: Path, url: str) -> None:
    assert Settings.load(environ={}, home=tmp_path, store=url).store == url


def test_a_store_with_an_unknown_scheme_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="no kind of store for the scheme 's4': s4://bucket"):
        Settings.load(environ={}, home=tmp_path, store="s4://bucket")


def test_slashes_around_the_prefix_of_an_s3_url_do_not_count(tmp_path: Path) -> None:
    for url in ("s3://bucket/a/", "S3://bucket/a", "s3://bucket/a//", "s3://bucket//a"):
        assert Settings.load(environ={}, home=tmp_path, store=url).store == "s3://bucket/a"
    assert Settings.load(environ={}, home=tmp_path, store="s3://bucket//").store == "s3://bucket"


@pytest.mark.parametrize("text", ["file:/srv/y", "FILE:/srv/y", "file:///srv/y", "file://localhost/srv/y"])
def test_a_file_url_may_have_one_slash(write: Write, tmp_path: Path, text: str) -> None:
    named = Settings.load(environ={}, config=write(f"store = 'a'\n[stores.a]\nurl = '{text}'"))
    assert named.store == named.stores["a"].url == "file:///srv/y"
    assert Settings.load(environ={"CAFCAT_STORE": text}, home=tmp_path).store == "file:///srv/y"
    assert Settings.load(environ={}, home=tmp_path, store=text).store == "file:///srv/y"


def test_a_name_with_file_and_a_colon_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Settings.load(environ={}, home=tmp_path, store="file:y").store == f"{tmp_path}/file:y"


@pytest.mark.parametrize(
    "url",
    [" file:///srv/chunks", " file:/srv", "file://host/srv/chunks", "file://", "file://srv"],
)
def test_a_named_folder_is_a_path_or_the_url_of_a_folder(write: Write, url: str) -> None:
    shown = refusal(environ={}, config=write(f'[stores.a]\nurl = "{url}"'))
    assert "is not the URL of a folder of this machine" in shown


@pytest.mark.parametrize(
    "url",
    [
        "https://key:hunter2@s3.example.org",
        "https://hunter2@s3.example.org",
        "https://key:12/hunter2@s3.example.org",
        "https://key:hunter2",
        "https://s3.example.org/?key=hunter2",
        "https://s3.example.org?hunter2",
        "https://s3.example.org/#hunter2",
        "https://s3.example.org/hunter2 ",
        "https://[hunter2]",
        "ftp://hunter2",
        "hunter2",
        "https:hunter2",
        "https://",
    ],
)
def test_an_endpoint_is_the_url_of_a_server_and_nothing_else(write: Write, url: str) -> None:
    shown = refusal(environ={}, config=write(f'[stores.a]\nurl = "s3://bucket"\nendpoint_url = "{url}"'))
    assert "stores.a.endpoint_url) is not the URL of a server" in shown
    assert "hunter2" not in shown


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:9000",
        "HTTPS://s3.example.org",
        "http://[::1]:80",
        "http://10.0.0.1",
        "https://x.org/storage/s3",
    ],
)
def test_endpoints_as_servers_have_them(write: Write, url: str) -> None:
    file = write(f'[stores.a]\nurl = "s3://bucket"\nendpoint_url = "{url}"')
    assert Settings.load(environ={}, config=file).options_of("s3://bucket/x") == {"endpoint_url": url}


@pytest.mark.parametrize(
    "key", ["access_key_id", "AccessKey", "client_secret", "password", "session_token", "credentials"]
)
@pytest.mark.parametrize("table", ["", "[profiles.p]", "[stores.a]\nurl = 's3://b'"])
def test_secrets_have_no_key_and_are_not_shown(write: Write, table: str, key: str) -> None:
    shown = refusal(environ={}, config=write(f"{table}\n{key} = 'hunter2'"))
    assert re.search(rf"unknown key \S*{key} in", shown)
    assert "AWS' own configuration (~/.aws/credentials) or environment (AWS_SECRET_ACCESS_KEY)" in shown
    assert "hunter2" not in shown


def test_the_examples_of_the_page_are_right(write: Write) -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    plain, stores = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert Settings.load(environ={}, config=write(plain), profile="archive").store == "/mnt/archive/chunks"
    settings = Settings.load(environ={}, config=write(stores))
    assert (settings.store, settings.stores["old"].url) == ("s3://bucket/prefix", "/srv/chunks")
    assert settings.options_of("s3://bucket/prefix/2026")["profile"] == "archive"
    assert settings.options_of("s3://bucket/prefix2") == {}


@pytest.mark.parametrize(("text", "seconds"), [('"0"', 0), ("0", 0), ("90", 90), ('"30s"', 30), ('"15m"', 900)])
def test_a_lock_timeout_is_a_duration(write: Write, text: str, seconds: int) -> None:
    assert Settings.load(environ={}, config=write(f"lock_timeout = {text}\n")).lock_timeout == seconds
    environ = {"CAFCAT_LOCK_TIMEOUT": text.strip('"')}
    assert Settings.load(environ=environ).lock_timeout == seconds
    for wrong in ("true", "1.5", '"soon"', "-1"):
        with pytest.raises(InvalidInput, match=r"lock_timeout \(file .*\) is not a duration"):
            Settings.load(environ={}, config=write(f"lock_timeout = {wrong}\n"))


def test_a_limit_of_staleness_is_a_duration_of_at_least_a_second(write: Write) -> None:
    assert Settings.load(environ={}, config=write('max_staleness = "5m"\n')).max_staleness == 300
    with pytest.raises(InvalidInput, match="must be at least 1 second"):
        Settings.load(environ={"CAFCAT_MAX_STALENESS": "0"})


def test_a_read_replica_needs_a_database_url(tmp_path: Path) -> None:
    replica = "postgresql://user:secret@standby/catalog"
    with pytest.raises(InvalidInput, match="is set without database_url") as caught:
        Settings.load(environ={"CAFCAT_READ_DATABASE_URL": replica}, home=tmp_path)
    assert "secret" not in str(caught.value)
    settings = Settings.load(environ={}, home=tmp_path, read_database_url=replica, database_url="postgresql:///x")
    assert settings.read_database_url == replica
    assert "secret" not in repr(settings)
