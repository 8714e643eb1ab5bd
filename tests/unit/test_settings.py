import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cafcat.errors import InvalidInput
from cafcat.settings import Settings, redact

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_config(text: str) -> Path:
        (tmp_path / "cafcat.toml").write_text(text)
        return tmp_path / "cafcat.toml"

    return write_config


def test_defaults(tmp_path: Path) -> None:
    settings = Settings.load(environ={"CAFCAT_HOME": str(tmp_path)})
    assert settings.home == tmp_path
    assert settings.database_url is None
    assert settings.store == str(tmp_path / "chunks")
    assert settings.target_size == 30_000_000_000
    assert settings.origins == {
        "home": "environment CAFCAT_HOME",
        "database_url": "default",
        "store": "default",
        "target_size": "default",
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
        "store": "environment CAFCAT_STORE",
        "target_size": "flag",
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
        ("sotre = '/x'", None, "unknown key sotre .*; keys are home, database_url, store, target_size"),
        ("[profiles.a]\nhme = '/x'", None, "unknown key profiles.a.hme"),
        ("[profiles.a]\n", "b", "no profile 'b' .*; profiles there: a"),
        ("", "b", "profiles there: none"),
        ("profiles = 3", None, "not tables"),
        ("store = 3", None, "store .* must be a text"),
        ("store = ''", None, "store .* must be a text"),
        ('home = "/a\\u0000b"', None, "home .* must be a text"),
        ("target_size = true", None, "target_size .* number of bytes"),
        ("target_size = 1.5", None, "target_size .* number of bytes"),
        ("target_size = -1", None, "target_size .* not a size"),
        ("target_size = 0", None, "target_size .* more than 0"),
        ("target_size = 'big'", None, r"target_size \(file .*: target_size\): not a size: 'big'"),
        ("home = ", None, "not TOML"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name(write: Write, text: str, profile: str | None, message: str) -> None:
    file = write(text)
    with pytest.raises(InvalidInput, match=message) as caught:
        Settings.load(environ={}, config=file, profile=profile)
    assert str(file) in str(caught.value)


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
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
def test_what_is_no_database_url_is_refused_without_showing_it(tmp_path: Path, given: str) -> None:
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
        ("s3://key:secret@bucket/x", "s3://key:***@bucket/x"),
        ("/srv/chunks", "/srv/chunks"),
    ],
)
def test_passwords_are_not_shown(url: str, shown: str) -> None:
    assert redact(url) == shown


def test_the_representation_of_settings_shows_no_password(tmp_path: Path) -> None:
    settings = Settings.load(environ=os.environ, home=tmp_path, database_url="postgresql://u:secret@h/d")
    assert "secret" not in repr(settings)
