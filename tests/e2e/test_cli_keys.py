"""keys add, keys list, keys revoke."""

import re
import stat
import sys

import psycopg
import pytest

import cafcat as cafcat_package
from cafcat.errors import InvalidInput, NotInstalled
from cafcat.serve.s3.keys import KeyRing, add_key
from cafcat.serve.s3.sealing import SEAL_KEY_VARIABLE, seal_of
from tests.e2e.conftest import Cafcat, documented_keys

SEAL_KEY = "c2VhbGluZyBrZXkgb2YgMzIgYnl0ZXMgZm9yIHRlc3Q="


def find(cafcat: Cafcat, access_key_id: str) -> str | None:
    """Return the secret of a key, as the server finds it."""
    with cafcat_package.open(database_url=cafcat.database_url, home=cafcat.folder / "home") as repository:
        key = KeyRing(repository.session, 0.0).find(access_key_id)
    return None if key is None else key.secret


def test_a_key_is_shown_once(cafcat: Cafcat) -> None:
    made = cafcat("keys", "add", "--prefix", "./photos/2026", "--expires", "30d", "--json").document
    assert set(made) == documented_keys("keys add")
    assert re.fullmatch("CAFCAT[A-Z2-7]{14}", made["access_key_id"])
    assert len(made["secret_access_key"]) == 40
    assert made["prefix"] == "photos/2026/"
    listed = cafcat("keys", "list", "--json").document
    assert set(listed) == documented_keys("keys list")
    assert (listed["access_key_id"], listed["state"]) == (made["access_key_id"], "active")
    assert listed["expires_at"] == made["expires_at"]
    assert made["secret_access_key"] not in cafcat("keys", "list").text
    assert find(cafcat, made["access_key_id"]) == made["secret_access_key"]


def test_keys_in_lines(cafcat: Cafcat) -> None:
    lines = cafcat("keys", "add").lines
    assert [line.split()[0] for line in lines] == ["access_key_id", "secret_access_key", "prefix"]
    assert lines[2].endswith("(all files)")
    name = lines[0].split()[1]
    assert cafcat("keys", "revoke", name, "--yes").lines == [f"revoked {name}"]
    assert cafcat("keys", "list").lines[0].split()[:2] == [name, "revoked"]


def test_a_secret_never_begins_like_an_option(cafcat: Cafcat, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = "-Jb18nZ1", "--kms", "Jb18nZ1-"
    drawn = iter([first, second, third])
    monkeypatch.setattr("secrets.token_urlsafe", lambda _: next(drawn))
    with cafcat_package.open(database_url=cafcat.database_url, home=cafcat.folder / "home") as repository:
        made = add_key(repository.session)
    assert made.secret_access_key == third
    assert made.access_key_id.startswith("CAFCAT")


def test_a_key_of_a_folder_without_files_gets_a_warning(cafcat: Cafcat) -> None:
    (cafcat.folder / "tree").mkdir()
    (cafcat.folder / "tree" / "a").write_bytes(b"a")
    cafcat("ingest", "tree", "-q")
    made = cafcat("keys", "add", "--prefix", "./nope/")
    assert made.err == "cafcat: warning: the catalog has no file below nope/\n"
    assert made.lines[2].endswith(" nope/")
    for arguments in (["--prefix", "tree"], ["--prefix", "."], []):
        assert cafcat("keys", "add", *arguments).err == ""


def test_a_key_of_a_folder_without_a_name_is_refused(cafcat: Cafcat) -> None:
    """A variable of the shell that is not set must not make a key for all files."""
    refused = cafcat("keys", "add", "--prefix", "", code=2)
    assert refused.err == "cafcat: the name of the folder is empty; write . for all files\n"


def test_a_second_home_makes_a_sealing_key_of_its_own(cafcat: Cafcat) -> None:
    first = cafcat("keys", "add", "--json")
    assert first.err == ""
    (cafcat.folder / "home" / "seal.key").rename(cafcat.folder / "seal.key")
    name = first.document["access_key_id"]
    assert find(cafcat, name) is None
    second = cafcat("keys", "add")
    assert "the catalog has access keys of another home" in second.err
    assert "copy seal.key, or set CAFCAT_SEAL_KEY" in second.err
    assert find(cafcat, name) is None


def test_revoke_asks_first(cafcat: Cafcat) -> None:
    name = cafcat("keys", "add", "--json").document["access_key_id"]
    refused = cafcat("keys", "revoke", name, "-q", code=9)
    assert "nobody can be asked; run it again with --yes" in refused.err
    assert refused.lines == []
    assert cafcat("keys", "list").lines[0].split()[:2] == [name, "active"]


def test_revoke_without_a_terminal_shows_the_key(cafcat: Cafcat) -> None:
    name = cafcat("keys", "add", "--prefix", "photos/2026", "--json").document["access_key_id"]
    everything = cafcat("keys", "add", "--json").document["access_key_id"]
    shown = cafcat("keys", "revoke", name, code=9).lines
    assert shown == [f"would revoke the active key {name} for photos/2026/"]
    cafcat("keys", "revoke", everything, "--yes")
    assert cafcat("keys", "revoke", everything, code=9).lines == [
        f"would revoke the revoked key {everything} for all files"
    ]
    as_json = cafcat("keys", "revoke", name, "--json", code=9)
    assert as_json.document == cafcat("keys", "list", "--json").documents[0]
    assert as_json.error["kind"] == "not_confirmed"


def test_a_key_that_does_not_exist_is_no_question(cafcat: Cafcat) -> None:
    assert "the catalog has no access key 'other'" in cafcat("keys", "revoke", "other", code=4).err


def test_a_revoked_key_is_refused_for_ever(cafcat: Cafcat) -> None:
    name = cafcat("keys", "add", "--json").document["access_key_id"]
    assert cafcat("keys", "revoke", name, "--yes", "--json").document == {"revoked": name}
    first = cafcat("keys", "list", "--json").document["revoked_at"]
    cafcat("keys", "revoke", name, "--yes")
    assert cafcat("keys", "list", "--json").document["revoked_at"] == first
    assert find(cafcat, name) is None
    assert "no access key" in cafcat("keys", "revoke", "CAFCATNOTHING", "--yes", code=4).err


def test_an_expired_key_is_refused(cafcat: Cafcat) -> None:
    name = cafcat("keys", "add", "--expires", "1h", "--json").document["access_key_id"]
    assert find(cafcat, name)
    assert cafcat.database_url
    with psycopg.connect(cafcat.database_url) as connection:
        connection.execute("UPDATE access_keys SET expires_at = now()")
    assert find(cafcat, name) is None
    assert cafcat("keys", "list", "--json").document["state"] == "expired"


@pytest.mark.parametrize("expires", ["0", "-1h", "soon", "200000d"])
def test_invalid_durations_are_refused(cafcat: Cafcat, expires: str) -> None:
    cafcat("keys", "add", f"--expires={expires}", code=2)
    assert cafcat("keys", "list").lines == []
    assert cafcat("keys", "list").err == "cafcat: there are no access keys; `cafcat keys add` makes one\n"


def test_the_secret_is_sealed(cafcat: Cafcat) -> None:
    made = cafcat("keys", "add", "--json").document
    assert cafcat.database_url
    with psycopg.connect(cafcat.database_url) as connection:
        [(sealed,)] = connection.execute("SELECT sealed_secret FROM access_keys").fetchall()
        assert made["secret_access_key"].encode() not in sealed
        path = cafcat.folder / "home" / "seal.key"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        # Whoever can write to the database cannot give a key another folder.
        connection.execute("UPDATE access_keys SET prefix = 'secret/'")
    assert find(cafcat, made["access_key_id"]) is None
    with psycopg.connect(cafcat.database_url) as connection:
        connection.execute("UPDATE access_keys SET prefix = ''")
    assert find(cafcat, made["access_key_id"]) == made["secret_access_key"]
    path.write_text(SEAL_KEY)
    assert find(cafcat, made["access_key_id"]) is None


def test_without_cryptography_no_key_is_made(cafcat: Cafcat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with (
        cafcat_package.open(database_url=cafcat.database_url, home=cafcat.folder / "home") as repository,
        pytest.raises(NotInstalled, match="cryptography") as error,
    ):
        add_key(repository.session)
    assert error.value.hint == "pip install '.[serve]' in a clone of cafcat"
    assert cafcat("keys", "list").lines == []


def test_the_sealing_key_is_made_once(cafcat: Cafcat) -> None:
    cafcat("keys", "add")
    path = cafcat.folder / "home" / "seal.key"
    first = path.read_bytes()
    cafcat("keys", "add")
    assert path.read_bytes() == first


def test_the_sealing_key_can_be_in_the_environment(cafcat: Cafcat, monkeypatch: pytest.MonkeyPatch) -> None:
    cafcat.extra[SEAL_KEY_VARIABLE] = SEAL_KEY
    made = cafcat("keys", "add", "--json").document
    assert not (cafcat.folder / "home" / "seal.key").exists()
    monkeypatch.setenv(SEAL_KEY_VARIABLE, SEAL_KEY)
    assert find(cafcat, made["access_key_id"]) == made["secret_access_key"]
    cafcat.extra[SEAL_KEY_VARIABLE] = "short"
    assert "32 bytes" in cafcat("keys", "add", code=2).err
    monkeypatch.setenv(SEAL_KEY_VARIABLE, "not base64!")
    with pytest.raises(InvalidInput, match="32 bytes"):
        seal_of(cafcat.folder)
