"""The console: logins, sessions, keys with a folder, public folders, proxies, and forms from other sites."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cafcat
from cafcat.errors import InvalidInput
from cafcat.serve.console import attempts, sessions
from cafcat.serve.options import ServeOptions
from cafcat.serve.s3.keys import NewKey, add_key, revoke_key
from cafcat.serve.s3.options import S3Options
from tests.console.client import Client, console
from tests.worlds.servers.services import Databases

pytest.importorskip("jinja2")

S3 = S3Options(key_seconds=0.0)
WHOLE = ["overview", "chunks", "runs", "findings", "stores", "chunk?uuid=x", "run?id=1"]


@pytest.fixture(scope="module")
def repository(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[cafcat.Repository]:
    folder = tmp_path_factory.mktemp("access")
    with (
        databases.fresh(databases.template()) as url,
        cafcat.open(database_url=url, home=folder / "home", store=(folder / "store").as_uri()) as repository,
    ):
        with repository.writer() as writer:
            for path in ("open/a.txt", "own/deep/b.txt", "own/c.txt", "secret/d.txt", "top.txt"):
                writer.add(path, path.encode())
        yield repository


@pytest.fixture(scope="module")
def key(repository: cafcat.Repository) -> NewKey:
    return add_key(repository.session)


@pytest.fixture(scope="module")
def own(repository: cafcat.Repository) -> NewKey:
    return add_key(repository.session, "own")


@pytest.fixture
def client(repository: cafcat.Repository) -> Iterator[Client]:
    with console(repository, s3=S3) as client:
        yield client


def status(client: Client, page: str, **headers: str) -> int:
    return client.get(f"/-/{page}", headers).status


def test_without_a_login_every_page_leads_to_the_login_and_back(client: Client, key: NewKey) -> None:
    for page in [*WHOLE, "browse", "search?q=a", "file?path=top.txt"]:
        answer = client.get(f"/-/{page}")
        assert answer.status == 303, page
        assert answer.headers["location"].startswith("login?next=")
    assert client.get("/-/raw?path=top.txt").status == 401
    form = client.follow(client.get("/-/browse?path=own/&after=c%26.txt"))
    target = re.search(r'name="next" value="([^"]*)"', form.text)
    assert target
    assert (
        client.log_in(key, next=target[1].replace("&amp;", "&")).headers["location"]
        == "browse?path=own/&after=c%26.txt"
    )
    assert status(client, "overview") == 200


def test_the_session_is_a_strict_cookie(client: Client, key: NewKey) -> None:
    client.log_in(key)
    for line in client.set_cookies:
        parts = line.lower().split("; ")
        assert {"httponly", "samesite=strict", "path=/"} <= set(parts)
        assert "secure" not in parts
    safe = client.another(scheme="https")
    safe.log_in(key)
    assert all("secure" in line.lower().split("; ") for line in safe.set_cookies)
    assert key.secret_access_key not in "".join(client.set_cookies)


@pytest.mark.parametrize(
    "fields",
    [
        {"secret": "wrong"},
        {"secret": ""},
        {"id": "CAFCATAAAAAAAAAAAAAA"},
        {"id": "x' OR true"},
        {"id": "", "secret": "\0"},
        {"id": "CAFCATAAAAAAAAAAAAAA", "secret": "\0"},
        {"secret": "é" * 40},
    ],
)
def test_a_wrong_login_is_refused(client: Client, key: NewKey, fields: dict[str, str]) -> None:
    answer = client.log_in(key, **fields)
    assert answer.status == 403
    assert 'role="alert"' in answer.text
    assert sessions.COOKIE not in client.cookies
    assert status(client, "overview") == 303


def test_a_changed_or_old_session_is_refused(
    client: Client, key: NewKey, own: NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.log_in(key)
    good = client.cookies[sessions.COOKIE]
    name, end, signature = good.split(".")
    changed = [
        f"{own.access_key_id}.{end}.{signature}",
        f"{name}.{int(end) + 1}.{signature}",
        f"{name}.{end}.{'0' * 64}",
        f"{name}.{end}",
        f"{name}.{end}.",
        f"{name}.-{end}.{signature}",
        f"{name}.9999999999999.{signature}",
        "..",
        "",
    ]
    for value in changed:
        client.cookies[sessions.COOKIE] = value
        assert status(client, "overview") == 303, value
    client.cookies[sessions.COOKIE] = good
    assert status(client, "overview") == 200
    now = time.time()
    monkeypatch.setattr(sessions.time, "time", lambda: now + sessions.SESSION_SECONDS + 1)
    assert status(client, "overview") == 303


def test_a_revoked_key_ends_its_sessions(client: Client, repository: cafcat.Repository) -> None:
    key = add_key(repository.session)
    client.log_in(key)
    assert status(client, "overview") == 200
    revoke_key(repository.session, key.access_key_id)
    assert status(client, "overview") == 303
    assert client.log_in(key).status == 403


def test_logging_out(client: Client, key: NewKey) -> None:
    client.log_in(key)
    assert f"Logged in as {key.access_key_id}" in client.get("/-/overview").text
    answer = client.post("/-/logout", {"token": client.token()})
    assert (answer.status, answer.headers["location"]) == (303, "login")
    assert status(client, "overview") == 303


def test_a_key_with_a_folder_shows_this_folder_only(client: Client, own: NewKey) -> None:
    client.log_in(own)
    assert client.get("/-/overview").headers["location"] == "browse"
    for page in WHOLE[1:]:
        answer = client.get(f"/-/{page}")
        assert answer.status == 403, page
        assert "some folders only" in answer.text
    top = client.get("/-/browse")
    assert [href for href in top.hrefs if href.startswith("browse?")] == ["browse?path=own/"]
    assert "top.txt" not in top.text
    assert "b.txt" in client.get("/-/browse?path=own/deep/").text
    assert client.get("/-/raw?path=own/c.txt").body == b"own/c.txt"
    assert "The catalog has no file with this path" in client.get("/-/file?path=own/../secret/d.txt").text
    for path in ("secret/d.txt", "open/a.txt", "top.txt", "none", "own", "../secret/d.txt"):
        assert status(client, f"file?path={path}") == 404, path
        assert status(client, f"raw?path={path}") in (400, 404), path
    for folder in ("secret/", "open/", "none/", "ow/"):
        assert status(client, f"browse?path={folder}") == 404, folder
    found = client.get("/-/search?q=**/*.txt").hrefs
    assert [href for href in found if href.startswith("file?")] == [
        "file?path=own/c.txt",
        "file?path=own/deep/b.txt",
    ]
    assert not [href for href in client.get("/-/search?q=secret").hrefs if href.startswith("file?")]
    page = client.get("/-/file?path=own/c.txt").text
    assert "/store/" not in page
    assert 'href="chunk' not in page
    assert "Runs" not in page


def test_public_folders_are_shown_without_a_login(repository: cafcat.Repository, own: NewKey) -> None:
    with console(repository, s3=S3Options(public=("open",), key_seconds=0.0)) as client:
        assert client.get("/-/overview").headers["location"] == "browse"
        assert status(client, "file?path=open/a.txt") == 200
        for page in [*WHOLE[1:], "file?path=own/c.txt", "browse?path=own/", "browse?path=none/"]:
            answer = client.get(f"/-/{page}")
            assert answer.status == 303, page
            assert answer.headers["location"].startswith("login?next="), page
        assert "The catalog has no file with this path" in client.get("/-/file?path=open/none").text
        for page in ("raw?path=own/c.txt", "csv?name=files"):
            answer = client.get(f"/-/{page}")
            assert answer.status == 401, page
            assert "log in" in answer.text, page
            assert "key shows" not in answer.text, page
        client.log_in(own)
        assert [status(client, f"file?path={path}") for path in ("open/a.txt", "own/c.txt", "top.txt")] == [
            200,
            200,
            404,
        ]
        assert [href for href in client.get("/-/browse").hrefs if "path=" in href] == [
            "browse?path=open/",
            "browse?path=own/",
        ]
    with console(repository, s3=S3Options(public=(".",))) as client:
        assert status(client, "overview") == 200


def test_a_preview_names_stores_only_to_visitors_who_see_them(
    repository: cafcat.Repository, own: NewKey, key: NewKey
) -> None:
    store = Path(repository.object_of(repository.locate("own/c.txt"))).parent
    away = store.rename(store.with_name("away"))
    try:
        with console(repository, s3=S3Options(public=("open",), key_seconds=0.0)) as client:
            without_login = client.get("/-/file?path=open/a.txt").text
            client.log_in(own)
            of_folder = client.get("/-/file?path=own/c.txt").text
            client.log_in(key)
            of_all = client.get("/-/file?path=own/c.txt").text
    finally:
        away.rename(store)
    for page in (without_login, of_folder):
        assert "The file cannot be read: the catalog or the store does not answer now" in page
        assert str(store.parent) not in page
    assert f"cannot find the store {store.as_uri()}" in of_all


def test_too_many_wrong_logins_have_to_wait(client: Client, key: NewKey, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(10):
        assert client.log_in(key, **{"secret": "x"}).status == 403
    answer = client.log_in(key)
    assert answer.status == 429
    assert 0 < int(answer.headers["retry-after"]) <= 301
    assert client.another(address="10.0.0.9").log_in(key).status == 303
    now = time.monotonic()
    monkeypatch.setattr(attempts.time, "monotonic", lambda: now + 301)
    assert client.log_in(key).status == 303


@pytest.mark.parametrize("form", ["login", "logout", "theme"])
def test_a_form_of_another_site_is_refused(client: Client, key: NewKey, form: str) -> None:
    token = client.token()
    fields = {"id": key.access_key_id, "secret": key.secret_access_key, "theme": "dark"}
    for given in ({}, {"token": "x" * 32}, {"token": ""}):
        assert client.post(f"/-/{form}", fields | given).status == 403
    assert client.post(f"/-/{form}", fields | {"token": token}, {"sec-fetch-site": "cross-site"}).status == 403
    stranger = client.another()
    assert stranger.post(f"/-/{form}", fields | {"token": token}).status == 403
    assert client.post(f"/-/{form}", fields | {"token": token}, {"sec-fetch-site": "same-origin"}).status == 303
    assert client.post(f"/-/{form}", {"x": "y" * 9000}).status == 413
    assert client.send("POST", f"/-/{form}", b"\xff=1", {}).status in (400, 403)


@pytest.mark.parametrize(
    "target", ["//evil.test", "https://evil.test", "javascript:alert(1)", "/etc", "../x", "a\r\nb: c", ""]
)
def test_a_login_leads_to_no_other_site(client: Client, key: NewKey, target: str) -> None:
    assert client.log_in(key, next=target).headers["location"] == "overview"


def test_light_and_dark_need_no_script(client: Client) -> None:
    token = client.token()
    assert 'data-theme="auto"' in client.get("/-/login").text
    answer = client.post("/-/theme", {"token": token, "theme": "dark", "next": "search?q=a%26b"})
    assert answer.headers["location"] == "search?q=a%26b"
    assert 'data-theme="dark"' in client.get("/-/login").text
    assert client.post("/-/theme", {"token": token, "theme": "<pink>"}).status == 400
    client.cookies["cafcat_theme"] = '"><script>'
    assert 'data-theme="auto"' in client.get("/-/login").text


def test_a_proxy_names_the_user(repository: cafcat.Repository, key: NewKey) -> None:
    options: dict[str, Any] = {"user_header": "X-User", "trusted_proxies": ("10.0.0.0/8",), "s3": S3}
    with console(repository, **options) as client:
        proxied, direct = client.another(address="10.1.2.3"), client.another(address="192.168.0.1")
        assert "Logged in as ann" in proxied.get("/-/overview", {"x-user": "ann"}).text
        assert status(client.another(address="::ffff:10.1.2.3"), "overview", **{"x-user": "ann"}) == 200
        assert status(direct, "overview", **{"x-user": "ann"}) == 303
        assert status(proxied, "overview") == 303
        assert status(proxied, "overview", **{"x-user": " "}) == 303
        for address, is_secure in (("10.1.2.3", True), ("192.168.0.1", False)):
            fresh = client.another(address=address)
            fresh.get("/-/login", {"x-forwarded-proto": "https"})
            assert ("secure" in fresh.set_cookies[0].lower()) is is_secure
        # Wrong logins are counted for the client that the proxy reports, not for what the client itself claims.
        token = proxied.token()
        for n in range(10):
            fields = {"token": token, "id": "x", "secret": "y"}
            proxied.post("/-/login", fields, {"x-forwarded-for": f"1.1.1.{n}, 8.8.8.8"})
        for address, expected in (("8.8.8.8", 429), ("9.9.9.9", 403)):
            assert proxied.post("/-/login", fields, {"x-forwarded-for": address}).status == expected


def test_files_only_for_visitors(repository: cafcat.Repository, key: NewKey) -> None:
    with console(repository, files=False, s3=S3) as client:
        for target in ("/files/top.txt", "/files/", "/files", "/batch"):
            assert client.get(target).status == 404, target
        assert client.get("/", {"accept": "*/*"}).headers["location"] == "./-/"
        assert client.get("/-/raw?path=top.txt").status == 401
        client.log_in(key)
        assert client.get("/-/raw?path=top.txt").body == b"top.txt"


def test_a_server_without_the_console(repository: cafcat.Repository) -> None:
    with console(repository, console=False) as client:
        assert client.get("/").headers["location"] == "/files/"
        assert [client.get(target).status for target in ("/-/", "/-/overview", "/-/static/x")] == [404] * 3


@pytest.mark.parametrize(
    "options",
    [
        {"user_header": "X-User"},
        {"user_header": "X-User", "trusted_proxies": ("here",)},
        {"trusted_proxies": ("10.0.0.1/8",)},
        {"files": False, "console": False},
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        ServeOptions(**options).check()


def test_without_a_sealing_key_nobody_logs_in(databases: Databases, tmp_path: Path) -> None:
    with (
        databases.fresh(databases.template()) as url,
        cafcat.open(database_url=url, home=tmp_path / "home", store=(tmp_path / "store").as_uri()) as repository,
    ):
        key = add_key(repository.session)
        (tmp_path / "home" / "seal.key").unlink()
        with console(repository, s3=S3) as client:
            answer = client.log_in(key)
            assert answer.status >= 400
            assert sessions.COOKIE not in client.cookies
            assert str(tmp_path) not in answer.text
