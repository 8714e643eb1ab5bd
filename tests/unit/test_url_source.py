"""URLs in a list, with a real web server that misbehaves, and a real S3 server."""

import gzip
import logging
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cafcat.errors import AccessDenied, InvalidInput, SourceFailed
from cafcat.model import FileProblem, SourceFile
from cafcat.sources.base import OpenFile, PrefetchingSource
from cafcat.sources.filter import PathFilter
from cafcat.sources.http import files as http
from cafcat.sources.http.urls import url_root
from cafcat.sources.kind import SourceContext, UrlFiles
from cafcat.sources.lists.name_list import NameListSource
from cafcat.sources.registry import find_kind, scheme_of
from tests.worlds.servers.s3_server import S3Server
from tests.worlds.servers.web_server import Handler, WebFile, WebServer, web_server
from tests.worlds.waiting import PATIENCE_SECONDS

__all__ = ["web_server"]

MIB = 1 << 20
SECRET = "5ecret"  # noqa: S105 - of no server


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "FIRST_PAUSE_SECONDS", 0.0)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the local time zone to one that is not UTC."""
    with monkeypatch.context() as context:
        context.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        yield
    time.tzset()


def listing(*urls: str, **options: Any) -> NameListSource:
    names = BytesIO(b"\0".join(map(os.fsencode, urls)))
    return NameListSource(names, null_separated=True, context=SourceContext(**options))


def files_of(url: str) -> UrlFiles:
    """Return the opener for the scheme of a URL."""
    kind = find_kind(scheme_of(url) or "")
    assert kind is not None
    return kind.url_files(SourceContext())


def listed(*urls: str, **options: Any) -> list[SourceFile | FileProblem]:
    return list(listing(*urls, **options).files())


def file_of(url: str) -> tuple[NameListSource, SourceFile]:
    source = listing(url)
    [file] = source.files()
    assert isinstance(file, SourceFile), file
    return source, file


def problem_of(url: str, **options: Any) -> FileProblem:
    [problem] = listed(url, **options)
    assert isinstance(problem, FileProblem), problem
    return problem


def content_of(url: str) -> bytes:
    source, file = file_of(url)
    with source.open(file) as opened:
        return b"".join(opened.blocks())


def failure_of(source: NameListSource, file: SourceFile) -> SourceFailed:
    with pytest.raises(SourceFailed) as caught, source.open(file) as opened:
        list(opened.blocks())
    assert caught.value.path == file.path
    return caught.value


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://example.org/a", "example.org/a"),
        ("https://example.org:8443/d/a", "example.org/d/a"),
        ("HTTP://Example.ORG/A", "example.org/A"),
        ("http://example.org/a?X-Amz-Signature=abc", "example.org/a"),
        ("http://example.org/a?b/c", "example.org/a"),
        ("http://example.org/a#part", "example.org/a"),
        ("http://user:secret@example.org/a", "example.org/a"),
        ("http://user@example.org/a@b", "example.org/a@b"),
        ("http://example.org/a%20b%2Fc", "example.org/a b/c"),
        ("http://example.org/a b", "example.org/a b"),
        ("http://example.org/caf%C3%A9", "example.org/café"),
        ("http://example.org/café", "example.org/café"),
        ("http://example.org/%41+", "example.org/A+"),
        ("http://example.org/100%", "example.org/100%"),
        ("http://example.org/a\nb", "example.org/a\nb"),
        ("http://example.org/d/../a", "example.org/a"),
        ("http://example.org/../a", "example.org/a"),
        ("http://example.org/./a", "example.org/a"),
        ("http://[::1]:80/a", "::1/a"),
        ("http://127.0.0.1/a", "127.0.0.1/a"),
        ("s3://bucket/key", "key"),
        ("s3://bucket/d/key?a#b%20+", "d/key?a#b%20+"),
        ("S3://bucket//key", "/key"),
    ],
)
def test_a_url_has_a_name(url: str, name: str) -> None:
    assert files_of(url).name_of(url) == name


@pytest.mark.parametrize(
    ("url", "path", "root"),
    [
        ("https://user:secret@example.org/d/a?secret", "example.org/d/a", "https://"),
        ("https://user:secret@example.org/d/a", "p/example.org/d/a", "https:// as p/"),
        (
            "https://secret@example.org:8443/d/a#secret",
            "example.org/d/a",
            "https://example.org:8443/ as example.org/",
        ),
    ],
)
def test_the_root_in_the_catalog_has_no_secret(url: str, path: str, root: str) -> None:
    assert url_root(url, path) == root


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://example.org:80/a b", "http://example.org:80/a b"),
        ("https://user:secret@example.org/a@b?secret#secret", "https://example.org/a@b"),
        ("https://se:cr:et@example.org/a", "https://example.org/a"),
        ("https://secret@[::1]:80/a?secret", "https://[::1]:80/a"),
        ("https://user:secret/more@example.org/", "https://..."),
        ("https://user:secret?more@example.org/", "https://..."),
        ("http://example.org/a\n\x1b", "http://example.org/a\\n\\x1b"),
        ("s3://bucket/key?a#b", "s3://bucket/key?a#b"),
        ("s3://secret:secret@bucket/key", "s3://bucket/key"),
        ("http://", "http://"),
    ],
)
def test_shown_url_has_no_secret(url: str, shown: str) -> None:
    assert files_of(url).shown(url) == shown


PART = st.text(st.characters(codec="utf-8", exclude_characters="/"), max_size=10).filter(
    lambda part: SECRET not in part
)


@given(PART, PART, PART, PART)
def test_no_secret_is_shown_wherever_it_stands(user: str, password: str, path: str, query: str) -> None:
    url = f"https://{user}:{password}{SECRET}@example.org/{path}?{query}{SECRET}#{SECRET}"
    assert SECRET not in files_of(url).shown(url)


@pytest.mark.parametrize(
    "url",
    ["http://", "http:///a", "http://host:port/a", "http://[::1/a", "http://?a", "s3://b/key", "s3://u:p@b/k"],
)
def test_invalid_urls_are_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match=r"not (a valid http:// or https:// URL|the (URL|name) of a bucket)"):
        files_of(url).name_of(url)
    assert problem_of(url)[:2] == (files_of(url).shown(url), "name")


@pytest.mark.parametrize(
    ("url", "path", "message"),
    [
        ("http://example.org", "example.org/", "the URL names a folder"),
        ("http://example.org/", "example.org/", "the URL names a folder"),
        ("http://example.org?a", "example.org/", "the URL names a folder"),
        ("http://example.org/d/?a", "example.org/d/", "the URL names a folder"),
        ("http://example.org/%00", "example.org/\\x00", "the name contains a NUL byte"),
        (
            "http://example.org/caf%E9",
            "example.org/caf\\xe9",
            "the name is not valid UTF-8: rename the file (convmv renames whole folders)",
        ),
        (
            "http://example.org/caf\udce9",
            "example.org/caf\\xe9",
            "the name is not valid UTF-8: rename the file (convmv renames whole folders)",
        ),
        ("http://example.org/d/%2e%2e/a", "example.org/d/../a", "the name has a part '..'"),
        ("http://example.org/%2E./%2e%2E%2Fetc/a", "example.org/../../etc/a", "the name has a part '..'"),
        ("http://example.org/d/..%2fa", "example.org/d/../a", "the name has a part '..'"),
        ("s3://bucket/../a", "../a", "the name has a part '..'"),
        ("s3://bucket/d/../a", "d/../a", "the name has a part '..'"),
        ("s3://bucket", "s3://bucket", "the URL names no object"),
        ("s3://bucket/", "s3://bucket/", "the URL names no object"),
        ("s3://bucket/d/", "d/", "the URL names a folder"),
    ],
)
def test_invalid_names_are_problems_without_a_request(url: str, path: str, message: str) -> None:
    assert problem_of(url) == FileProblem(path, "name", message)  # type: ignore[arg-type]


def test_names_that_are_too_long_are_problems() -> None:
    assert re.search(r"longer than 2,048 bytes \(2,060\)", problem_of("http://example.org/" + "x" * 2048).message)
    assert problem_of("s3://bucket/" + "x" * 1024, prefix="p" * 1024).kind == "name"


def test_the_prefix_comes_first_and_patterns_see_the_name(web_server: WebServer) -> None:
    web_server.write("d/a.txt", b"a")
    web_server.write("d/b.dat", b"b")
    urls = [web_server.url("d/a.txt"), web_server.url("d/b.dat")]
    assert [file.path for file in listed(*urls, prefix="/p/q")] == [
        "p/q/127.0.0.1/d/a.txt",
        "p/q/127.0.0.1/d/b.dat",
    ]
    web_server.asked.clear()
    assert [file.path for file in listed(*urls, prefix="p", filter=PathFilter(exclude=["/127.0.0.1/d/*.dat"]))] == [
        "p/127.0.0.1/d/a.txt"
    ]
    assert [asked.target for asked in web_server.asked] == ["/d/a.txt"]


def test_size_time_and_tag_come_from_head(web_server: WebServer) -> None:
    web_server.files["a"] = WebFile(b"content", '"tag"', "Sun, 06 Nov 1994 08:49:37 GMT")
    url = web_server.url("a") + "?query"
    assert listed(url) == [SourceFile("127.0.0.1/a", 7, 784111777 * 10**9, url, "tag")]
    [asked] = web_server.asked
    assert (asked.method, asked.target) == ("HEAD", "/a?query")
    assert asked.headers["Accept-Encoding"] == "identity"


@pytest.mark.parametrize(
    ("modified", "seconds"),
    [
        ("Sun, 06 Nov 1994 08:49:37 GMT", 784111777),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 784111777),
        ("Sun Nov  6 08:49:37 1994", 784111777),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        ("yesterday", 0),
        ("", 0),
        (None, 0),
    ],
)
def test_times_are_read_in_all_forms_of_http(
    web_server: WebServer, elsewhere: None, modified: str | None, seconds: int
) -> None:
    web_server.files["a"] = WebFile(b"", '"tag"', modified)
    assert file_of(web_server.url("a"))[1].modified_ns == seconds * 10**9


@pytest.mark.parametrize("etag", [None, "", 'W/"weak"', "unquoted", '"two" "tags"', '""', '"' + "x" * 2000 + '"'])
def test_only_a_strong_tag_is_a_tag(web_server: WebServer, etag: str | None) -> None:
    web_server.files["a"] = WebFile(b"", etag, "Sun, 06 Nov 1994 08:49:37 GMT")
    assert file_of(web_server.url("a"))[1].etag is None
    assert content_of(web_server.url("a")) == b""
    assert web_server.asked[-1].headers["If-Match"] is None


@pytest.mark.parametrize("etag", [None, 'W/"weak"'])
def test_a_file_with_nothing_to_compare_never_looks_unchanged(web_server: WebServer, etag: str | None) -> None:
    web_server.files["a"] = WebFile(b"content", etag, None)
    url = web_server.url("a")
    times = []
    for _ in range(2):
        source, file = file_of(url)
        times.append(file.modified_ns // 1000)
        with source.open(file) as opened:
            assert opened.read() == b"content"
            assert opened.modified_ns is None, "no server sent a modification time"
    assert times[0] < times[1]


def decline(status: int) -> Callable[[Handler], None]:
    """Return a handler that declines HEAD and serves GET."""

    def special(handler: Handler) -> None:
        if handler.command == "HEAD":
            handler.answer(status)
        else:
            handler.serve()

    return special


@pytest.mark.parametrize("status", [400, 401, 403, 405, 501])
def test_get_is_used_if_head_is_refused(web_server: WebServer, status: int) -> None:
    web_server.write("a", b"content")
    web_server.special["a"] = decline(status)
    assert file_of(web_server.url("a"))[1].size_bytes == 7
    assert web_server.methods() == ["HEAD", "GET"]
    assert content_of(web_server.url("a")) == b"content"


def test_get_in_place_of_head_reads_no_body(web_server: WebServer) -> None:
    """The body is too large to be read."""

    def special(handler: Handler) -> None:
        if handler.command == "HEAD":
            handler.answer(405)
        else:
            handler.head(200, content_length=str(10**15), etag='"tag"')
            handler.hang_up()

    web_server.special["a"] = special
    assert file_of(web_server.url("a"))[1].size_bytes == 10**15


def test_unread_answers_release_their_connections(web_server: WebServer) -> None:
    """A server gets at most 64 connections."""

    def special(handler: Handler) -> None:
        if handler.command == "HEAD":
            handler.answer(405)
        else:
            handler.head(200, content_length=str(10**15))
            handler.hang_up()

    web_server.special["a"] = special
    assert [item.path for item in listed(*[web_server.url("a")] * 100)] == ["127.0.0.1/a"] * 100


def test_where_head_has_no_length_get_may_have_it(web_server: WebServer) -> None:
    def special(handler: Handler) -> None:
        if handler.command == "HEAD":
            handler.answer(200, content_length=None)
        else:
            handler.serve()

    web_server.write("a", b"content")
    web_server.special["a"] = special
    assert content_of(web_server.url("a")) == b"content"


@pytest.mark.parametrize("length", [None, "", "-1", "many", "9" * 30])
def test_without_any_length_a_url_is_a_failed_file(web_server: WebServer, length: str | None) -> None:
    def special(handler: Handler) -> None:
        handler.answer(200, content_length=length)
        handler.hang_up()

    web_server.special["a"] = special
    problem = problem_of(web_server.url("a"))
    assert (problem.path, problem.kind) == ("127.0.0.1/a", "unreadable")
    assert problem.message == "the server does not send the size of the file"


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (404, "vanished", "the server answered 404 Not Found"),
        (410, "vanished", "the server answered 410 Gone"),
        (403, "unreadable", "the server answered 403 Forbidden"),
        (301, "unreadable", "the server answered 301 Moved Permanently"),
        (204, "unreadable", "the server answered 204 No Content"),
        (499, "unreadable", "the server answered 499"),
        (503, "unreadable", "the server answered 503 Service Unavailable"),
        (429, "unreadable", "the server answered 429 Too Many Requests"),
    ],
)
def test_refused_url_fails_alone(web_server: WebServer, status: int, kind: str, words: str) -> None:
    web_server.write("a", b"")
    web_server.special["bad"] = lambda handler: handler.answer(status)
    found = listed(web_server.url("bad"), web_server.url("a"))
    assert found[0] == FileProblem("127.0.0.1/bad", kind, words)  # type: ignore[arg-type]
    assert found[1].path == "127.0.0.1/a"


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 599])
def test_temporary_errors_are_tried_again(
    web_server: WebServer, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """The server chooses the pause before the next attempt, up to a limit."""
    monkeypatch.setattr(http, "LONGEST_PAUSE_SECONDS", 0)
    left = [status] * 5

    def special(handler: Handler) -> None:
        if left:
            handler.answer(left.pop(), b"later", retry_after="9" * (len(left) * 4))
        else:
            handler.serve()

    web_server.write("a", b"content")
    web_server.special["a"] = special
    source, file = file_of(web_server.url("a"))
    assert web_server.methods() == ["HEAD"] * 6
    left.extend([status] * 5)
    with source.open(file) as opened:
        assert opened.read() == b"content"
    assert web_server.methods() == ["HEAD"] * 6 + ["GET"] * 6
    left.extend([status] * 6)
    assert failure_of(source, file).problem == "unreadable"


def test_a_connection_that_ends_without_an_answer_is_made_again(web_server: WebServer) -> None:
    left = [1] * 5

    def special(handler: Handler) -> None:
        if left:
            left.pop()
            handler.hang_up()
        else:
            handler.serve()

    web_server.write("a", b"content")
    web_server.special["a"] = special
    assert content_of(web_server.url("a")) == b"content"
    left.extend([1] * 6)
    assert problem_of(web_server.url("a")).message == "the connection to the server broke"


def test_unreachable_server_affects_only_its_own_files(web_server: WebServer) -> None:
    web_server.write("a", b"")
    gone = "http://127.0.0.1:1/a"
    problems = listed(gone, "http://nowhere.invalid/a", web_server.url("a"))
    assert [problem.path for problem in problems] == ["127.0.0.1/a", "nowhere.invalid/a", "127.0.0.1/a"]
    assert problems[0][1:] == ("unreadable", "no connection to the server: Connection refused")
    assert problems[1][1:] == ("unreadable", "the name of the server cannot be resolved")
    assert isinstance(problems[2], SourceFile)


def test_silent_server_is_given_up(web_server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "READ_SECONDS", 0.1)
    monkeypatch.setattr(http, "ATTEMPTS", 2)
    done = threading.Event()
    web_server.special["a"] = lambda handler: (done.wait(PATIENCE_SECONDS), handler.hang_up())[1]
    try:
        assert re.fullmatch("the server sent nothing for .* seconds", problem_of(web_server.url("a")).message)
    finally:
        done.set()
    assert len(web_server.asked) == 2


def test_https_never_falls_back_to_http(web_server: WebServer) -> None:
    """The server does not support TLS."""
    problem = problem_of(web_server.url("a", scheme="https"))
    assert problem.kind == "unreadable"
    assert re.match("no secure connection to the server: .*SSL", problem.message)
    assert web_server.connections == 1


def test_request_to_an_invalid_host_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "FIRST_PAUSE_SECONDS", threading.TIMEOUT_MAX)
    assert problem_of(f"http://{'a' * 64}.example/a")[1:] == ("unreadable", "no request can be sent to this URL")


def redirect(to: str, status: int = 302) -> Callable[[Handler], None]:
    return lambda handler: handler.answer(status, b"elsewhere", location=to)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed_and_the_name_is_kept(web_server: WebServer, status: int) -> None:
    web_server.write("d/target é", b"content")
    web_server.special["a"] = redirect("d/b?x=y", status)
    unescaped = web_server.url("d/target é").replace("%C3%A9", "é").encode().decode("latin-1")
    web_server.special["d/b"] = redirect(unescaped, status)
    source, file = file_of(web_server.url("a"))
    assert (file.path, file.size_bytes) == ("127.0.0.1/a", 7)
    with source.open(file) as opened:
        assert opened.read() == b"content"
    targets = ["/a", "/d/b?x=y", "/d/target%20%C3%A9"]
    assert [asked.target for asked in web_server.asked] == targets * 2
    assert web_server.methods() == ["HEAD"] * 3 + ["GET"] * 3


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("a", "the server redirects more than 10 times"),
        (
            "file:///etc/passwd",
            "the server redirects to another kind of URL: not a valid http:// or https:// URL: file:///etc/passwd",
        ),
        (
            "https://user:secret@:port/?secret",
            "the server redirects to another kind of URL: not a valid http:// or https:// URL: https://...",
        ),
    ],
)
def test_redirects_lead_only_so_far(web_server: WebServer, location: str, words: str) -> None:
    web_server.special["a"] = redirect(location)
    problem = problem_of(web_server.url("a"))
    assert problem.kind == "unreadable"
    assert problem.message == words
    assert len(web_server.asked) <= 11


def test_a_login_in_the_url_is_used_and_goes_to_no_other_server(web_server: WebServer) -> None:
    web_server.write("b", b"content")
    web_server.special["a"] = redirect("/b")
    web_server.special["away"] = redirect(web_server.url("b", host="localhost"))
    user = "us%40er:pass%20word@"
    assert listed(web_server.url("a", user), web_server.url("away", user))[0].path == "127.0.0.1/a"
    sent = {
        (asked.target, asked.headers["Host"].partition(":")[0]): asked.headers["Authorization"]
        for asked in web_server.asked
    }
    basic = "Basic dXNAZXI6cGFzcyB3b3Jk"
    assert sent == {
        ("/a", "127.0.0.1"): basic,
        ("/b", "127.0.0.1"): basic,
        ("/away", "127.0.0.1"): basic,
        ("/b", "localhost"): None,
    }


def test_bytes_that_are_encoded_are_not_the_file(web_server: WebServer) -> None:
    data = gzip.compress(b"content")
    web_server.write("a", b"content")
    web_server.special["a"] = lambda handler: handler.answer(200, data, content_encoding="gzip")
    problem = problem_of(web_server.url("a"))
    assert (problem.kind, "compressed or encoded" in problem.message) == ("unreadable", True)
    web_server.special["a"] = lambda handler: handler.answer(200, b"plain", content_encoding="Identity")
    assert content_of(web_server.url("a")) == b"plain"


@pytest.mark.parametrize("size_bytes", [0, 5, 3 * MIB])
@pytest.mark.parametrize("has_tag", [False, True])
def test_a_file_that_changed_since_it_was_listed_fails(
    web_server: WebServer, size_bytes: int, has_tag: bool
) -> None:
    source, file = None, None
    for change in (b"x" * size_bytes, b"x" * size_bytes + b"!"):
        web_server.write("a", b"o" * size_bytes)
        if not has_tag:
            web_server.files["a"] = web_server.files["a"]._replace(etag=None)
        source, file = file_of(web_server.url("a"))
        web_server.write("a", change)
        if not has_tag:
            web_server.files["a"] = web_server.files["a"]._replace(etag=None)
        assert failure_of(source, file).problem == "changed"
        assert (web_server.asked[-1].headers["If-Match"] is not None) == has_tag
    web_server.remove("a")
    assert source is not None
    assert file is not None
    assert failure_of(source, file).problem == "vanished"


def test_a_server_that_ignores_conditions_is_found_out(web_server: WebServer) -> None:
    web_server.files["a"] = WebFile(b"old", '"1"', None)
    source, file = file_of(web_server.url("a"))
    web_server.special["a"] = lambda handler: handler.answer(200, b"new", etag='"2"')
    assert failure_of(source, file).problem == "changed"


@pytest.mark.parametrize("data", [b"shorter", b"longer by far"])
def test_another_length_is_another_file(web_server: WebServer, data: bytes) -> None:
    """The server sends neither an entity tag nor a time."""
    web_server.files["a"] = WebFile(b"original", None, None)
    source, file = file_of(web_server.url("a"))
    web_server.files["a"] = WebFile(data, None, None)
    assert failure_of(source, file).problem == "changed"


def test_time_does_not_matter_if_the_tags_are_equal(web_server: WebServer) -> None:
    """Several machines behind one name may have different times."""
    web_server.files["a"] = WebFile(b"old", '"1"', "Sun, 06 Nov 1994 08:49:37 GMT")
    source, file = file_of(web_server.url("a"))
    web_server.files["a"] = web_server.files["a"]._replace(modified="Sun, 06 Nov 1994 08:49:38 GMT")
    with source.open(file) as opened:
        assert opened.read() == b"old"


def chunked(*parts: bytes, **headers: str) -> Callable[[Handler], None]:
    def special(handler: Handler) -> None:
        if handler.command == "HEAD":
            handler.serve()
            return
        handler.head(200, transfer_encoding="chunked", **headers)
        for part in parts:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        handler.wfile.write(b"0\r\n\r\n")

    return special


@pytest.mark.parametrize("size_bytes", [7, 2 * MIB])
def test_a_body_without_a_length_is_counted(web_server: WebServer, size_bytes: int) -> None:
    data = bytes(range(256)) * (size_bytes // 256) + b"x" * (size_bytes % 256)
    web_server.write("a", data)
    web_server.special["a"] = chunked(data[:5], data[5:])
    assert content_of(web_server.url("a")) == data
    source, file = file_of(web_server.url("a"))
    web_server.special["a"] = chunked(data, b"!")
    assert failure_of(source, file).problem == "changed"
    web_server.special["a"] = chunked(data[:-1])
    assert failure_of(source, file).problem == "unreadable"


def cutting(*sizes: int) -> Callable[[Handler], None]:
    """Return a handler whose GET breaks off after each of these sizes in turn, and then sends everything."""
    left = list(sizes)

    def special(handler: Handler) -> None:
        file = handler.web.files[handler.file_path]
        if handler.command == "HEAD" or not left:
            handler.serve()
        else:
            start = int((handler.headers["Range"] or "bytes=0-")[6:-1])
            size = len(file.data)
            status, span = (206, f"bytes {start}-{size - 1}/{size}") if start else (200, None)
            handler.head(status, file, content_length=str(size - start), content_range=span)
            handler.wfile.write(file.data[start : start + left.pop(0)])
            handler.hang_up()

    return special


DATA = b"".join(b"%08d" % n for n in range(MIB // 2))


def test_a_large_body_that_breaks_off_is_gone_on_with(web_server: WebServer) -> None:
    web_server.write("a", DATA)
    web_server.special["a"] = cutting(*[1000] * 20)
    assert content_of(web_server.url("a")) == DATA
    web_server.asked.clear()
    web_server.special["a"] = cutting(0, 1, MIB, 5)
    assert content_of(web_server.url("a")) == DATA
    ranges = [asked.headers["Range"] for asked in web_server.asked if asked.method == "GET"]
    assert ranges == [None, None, "bytes=1-", f"bytes={MIB + 1}-", f"bytes={MIB + 6}-"]
    assert {asked.headers["If-Match"] for asked in web_server.asked[1:]} == {'"tag-1"'}
    assert {asked.headers["If-Range"] for asked in web_server.asked[3:]} == {'"tag-1"'}


def test_a_small_body_that_breaks_off_is_gone_on_with_too(web_server: WebServer) -> None:
    web_server.write("a", DATA[:1000])
    web_server.special["a"] = cutting(0, 10, 20)
    assert content_of(web_server.url("a")) == DATA[:1000]


def test_a_body_that_gets_no_further_is_given_up(web_server: WebServer) -> None:
    web_server.write("a", DATA)
    web_server.special["a"] = cutting(MIB, *[0] * 6)
    source, file = file_of(web_server.url("a"))
    failure = failure_of(source, file)
    assert failure.problem == "unreadable"
    assert failure.message == "the connection broke after 1,048,576 of 4,194,304 bytes"
    assert len(web_server.asked) == 1 + 1 + 5


@pytest.mark.parametrize("missing", ["etag", "accept_ranges"])
def test_where_a_server_cannot_go_on_a_broken_body_is_a_failure(web_server: WebServer, missing: str) -> None:
    web_server.write("a", DATA)
    web_server.files["a"] = web_server.files["a"]._replace(**{missing: None})
    web_server.special["a"] = cutting(0, 100)
    failure = failure_of(*file_of(web_server.url("a")))
    assert failure.problem == "unreadable"
    assert failure.message.endswith("after 100 of 4,194,304 bytes, and the server cannot continue from there")


@pytest.mark.parametrize(
    "then",
    [
        lambda handler: handler.answer(412),
        lambda handler: handler.answer(416),
        lambda handler: handler.answer(200, DATA, etag='"tag-1"'),
        lambda handler: handler.answer(200, DATA[:-1] + b"!", etag='"2"'),
        lambda handler: handler.answer(206, DATA[100:], etag='"2"', content_range="bytes 100-4194303/4194304"),
        lambda handler: handler.answer(206, DATA[100:], etag='"tag-1"', content_range="bytes 100-4194303/4194305"),
        lambda handler: handler.answer(206, DATA[99:], etag='"tag-1"', content_range="bytes 99-4194303/4194304"),
        lambda handler: handler.answer(206, DATA[99:-1], etag='"tag-1"', content_range="bytes 99-4194302/4194304"),
        lambda handler: handler.answer(206, DATA[100:], etag='"tag-1"'),
        lambda handler: (handler.answer(200, DATA[100:], content_length=None), handler.hang_up())[1],
        lambda handler: handler.answer(206, DATA[100:] + b"!", content_range="bytes 100-4194303/*"),
    ],
)
def test_a_rest_of_something_else_is_not_put_behind_a_beginning(
    web_server: WebServer, then: Callable[[Handler], None]
) -> None:
    def special(handler: Handler) -> None:
        if handler.headers["Range"]:
            then(handler)
        else:
            cutting(100)(handler)

    web_server.write("a", DATA)
    web_server.special["a"] = special
    assert failure_of(*file_of(web_server.url("a"))).problem == "changed"


def test_blocks_are_small_and_read_is_all_of_them(web_server: WebServer) -> None:
    web_server.write("a", DATA)
    source, file = file_of(web_server.url("a"))
    with source.open(file) as opened:
        blocks = opened.blocks()
        assert 0 < len(next(blocks)) <= MIB
        assert max(map(len, blocks)) <= MIB
        assert opened.read() == DATA
    assert (opened.size_bytes, opened.modified_ns, opened.etag) == (*file[1:3], file.etag)


def test_connections_are_used_again(web_server: WebServer) -> None:
    ports = set()
    web_server.special["a"] = lambda handler: (ports.add(handler.client_address), handler.serve())[1]
    web_server.write("a", b"content")
    source, file = file_of(web_server.url("a"))
    for _ in range(3):
        with source.open(file) as opened:
            opened.read()
    web_server.remove("a")
    failure_of(source, file)
    failure_of(source, file)
    assert len(ports) == 1


def test_messages_and_logs_have_no_secret_of_a_url(web_server: WebServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    secret = SECRET

    def broken_header(handler: Handler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nbad header\r\n\r\n")
        handler.hang_up()

    answers: dict[str, Callable[[Handler], None]] = {
        "gone": lambda handler: handler.answer(404),
        "failing": lambda handler: handler.answer(500, secret.encode()),
        "hang up": Handler.hang_up,
        "loop": redirect(f"loop?{secret}"),
        "file": redirect(f"file://{secret}@host/?{secret}"),
        "host": redirect(f"http://user:{secret}@host:port/?{secret}"),
        "nowhere": redirect(f"http://user:{secret}@nowhere.invalid/?{secret}"),
        "garbage": lambda handler: handler.wfile.write(b"garbage\r\n\r\n"),  # type: ignore[dict-item,return-value]
        "encoded": lambda handler: handler.answer(200, content_encoding=secret),
        "cut": cutting(10, *[0] * 100),
        "broken header": broken_header,
    }
    web_server.special.update(answers)
    web_server.files["cut"] = WebFile(b"x" * 100, '"tag"', None)
    urls = [web_server.url(path, f"user:{secret}@") + f"?{secret}#{secret}" for path in answers]
    urls += [f"https://user:{secret}@127.0.0.1:1/?{secret}", f"http://user:{secret}@/a?{secret}"]
    urls += [f"http://user:{secret}/@host/a", f"http://user:{secret}@host:port/a", f"s3://user:{secret}@bucket/key"]
    source = listing(*urls)
    said: list[object] = [source.name]
    for item in source.files():
        said.append(item if isinstance(item, FileProblem) else item.path)
        if isinstance(item, SourceFile) and item.path.endswith(("cut", "broken header")):
            error = failure_of(source, item)
            said += [error, repr(error), vars(error), error.__cause__]
    assert len(said) >= len(urls)
    assert secret not in "\n".join(map(str, said))
    logged = [record.getMessage() for record in caplog.records]
    assert any("Failed to parse headers" in message for message in logged)
    assert secret not in "\n".join(logged)


def in_flight(count: int) -> Callable[[Handler], None]:
    """Return a handler that answers once this number of requests is in flight."""
    barrier = threading.Barrier(count)

    def special(handler: Handler) -> None:
        try:
            barrier.wait(PATIENCE_SECONDS)
        except threading.BrokenBarrierError:
            handler.answer(404)
        else:
            handler.serve()

    return special


def test_many_urls_are_requested_at_once_and_come_in_order(web_server: WebServer) -> None:
    paths = [f"file{n}" for n in range(32)]
    special = in_flight(32)
    for path in paths:
        web_server.write(path, path.encode())
        web_server.special[path] = special
    source = listing(*map(web_server.url, paths))
    files = [file for file in source.files() if isinstance(file, SourceFile)]
    assert [file.path for file in files] == [f"127.0.0.1/{path}" for path in paths]
    contents = [
        opened.read().decode() for opened in source.open_each(files) if not isinstance(opened, SourceFailed)
    ]
    assert contents == paths


def test_unfinished_list_sends_no_further_requests(web_server: WebServer) -> None:
    web_server.write("a", b"")
    files = listing(*[web_server.url("a")] * 1000).files()
    next(files)
    files.close()  # type: ignore[attr-defined]
    assert len(web_server.asked) <= 70


def test_local_files_and_urls_come_in_the_order_of_the_list(
    web_server: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("d").mkdir()
    for path in ("a", "d/x", "d/y", "z"):
        Path(path).write_text(path)
    web_server.write("b", b"127.0.0.1/b")
    web_server.write("c", b"127.0.0.1/c")
    source = listing(
        "a", "d", web_server.url("b"), "nothing", "d/y", web_server.url("gone"), web_server.url("c"), "z"
    )
    assert isinstance(source, PrefetchingSource)
    found = list(source.files())
    expected = ["a", "d/x", "d/y", "127.0.0.1/b", "nothing", "d/y", "127.0.0.1/gone", "127.0.0.1/c", "z"]
    assert [item.path for item in found] == expected
    files = [item for item in found if isinstance(item, SourceFile)]
    Path("d/x").unlink()
    web_server.remove("c")
    results = list(source.open_each(iter(files)))
    assert [said(result) for result in results] == [
        "a", "d/x: vanished", "d/y", "127.0.0.1/b", "d/y", "127.0.0.1/c: vanished", "z",
    ]  # fmt: skip


def said(result: OpenFile | SourceFailed) -> str:
    if isinstance(result, SourceFailed):
        return f"{result.path}: {result.problem}"
    with result as opened:
        return opened.read().decode()


def test_a_list_of_local_names_loads_no_client(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    script = (
        "import sys; from io import BytesIO; from cafcat.sources.lists.name_list import NameListSource\n"
        "source = NameListSource(BytesIO(b'a')); files = list(source.files())\n"
        "[file.read() for file in source.open_each(files)]\n"
        "print(*{'boto3', 'botocore', 'obstore', 'urllib3', 'concurrent.futures.thread'} & sys.modules.keys())"
    )
    run = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert (run.stdout, run.returncode) == ("\n", 0), run.stderr


@pytest.fixture
def client(s3_server: S3Server, s3_environment: None) -> Iterator[Any]:
    client = s3_server.client()
    yield client
    client.close()


def test_objects_of_several_buckets_are_files(client: Any, make_bucket: Callable[[], str]) -> None:
    buckets = [make_bucket(), make_bucket()]
    for n, bucket in enumerate(buckets):
        client.put_object(Bucket=bucket, Key=f"d/key {n}?", Body=b"x" * (n * 2 * MIB + 1))
    asked: list[str] = []

    def options_of(url: str) -> dict[str, str]:
        asked.append(url)
        return {}

    urls = [f"s3://{buckets[0]}/d/key 0?", f"S3://{buckets[1]}/d/key 1?", f"s3://{buckets[0]}/nothing"]
    source = listing(*urls, options_of=options_of)
    *files, problem = source.files()
    assert sorted(asked) == sorted(urls)
    for n, (file, bucket) in enumerate(zip(files, buckets, strict=True)):
        head = client.head_object(Bucket=bucket, Key=f"d/key {n}?")
        assert isinstance(file, SourceFile)
        assert file[:2] == (f"d/key {n}?", n * 2 * MIB + 1)
        assert (file.modified_ns, file.etag) == (head["LastModified"].timestamp() * 10**9, head["ETag"].strip('"'))
        assert file.locator == urls[n]
        with source.open(file) as opened:
            assert opened.read() == b"x" * file.size_bytes
    assert isinstance(problem, FileProblem)
    assert (problem.path, problem.kind) == ("nothing", "vanished")


def test_objects_that_change_or_vanish_fail_alone(client: Any, s3_bucket: str) -> None:
    for key in ("changed", "gone", "kept"):
        client.put_object(Bucket=s3_bucket, Key=key, Body=key.encode())
    source = listing(*(f"s3://{s3_bucket}/{key}" for key in ("changed", "gone", "kept")))
    files = [file for file in source.files() if isinstance(file, SourceFile)]
    client.put_object(Bucket=s3_bucket, Key="changed", Body=b"Changed")
    client.delete_object(Bucket=s3_bucket, Key="gone")
    assert [said(result) for result in source.open_each(files)] == ["changed: changed", "gone: vanished", "kept"]


def test_refused_credentials_end_the_run(
    client: Any, s3_bucket: str, web_server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    web_server.write("a", b"")
    client.put_object(Bucket=s3_bucket, Key="key", Body=b"")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wr0ng")
    files = listing(web_server.url("a"), f"s3://{s3_bucket}/key", web_server.url("a")).files()
    assert next(files).path == "127.0.0.1/a"
    with pytest.raises(AccessDenied) as caught:
        next(files)
    assert "wr0ng" not in str(caught.value)
    assert caught.value.hint


def test_an_object_that_we_may_not_read_fails_alone(web_server: WebServer, client: Any, s3_bucket: str) -> None:
    """S3 refuses HEAD without a body, and GET with a document."""
    document = b"<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
    web_server.special["bucket/denied"] = lambda handler: handler.answer(
        403, document, content_type="application/xml"
    )
    client.put_object(Bucket=s3_bucket, Key="kept", Body=b"")

    def options_of(url: str) -> dict[str, str]:
        endpoint_url = f"http://127.0.0.1:{web_server.port}"
        return {"endpoint_url": endpoint_url, "addressing": "path"} if url.startswith("s3://bucket/") else {}

    problem, kept = listed("s3://bucket/denied", f"s3://{s3_bucket}/kept", options_of=options_of)
    assert isinstance(problem, FileProblem)
    assert (problem.path, problem.kind) == ("denied", "unreadable")
    assert "Access Denied" in problem.message
    assert kept.path == "kept"


def test_signed_url_is_requested_with_its_signed_method(client: Any, s3_bucket: str) -> None:
    client.put_object(Bucket=s3_bucket, Key="d/key", Body=DATA)
    url = client.generate_presigned_url("get_object", Params={"Bucket": s3_bucket, "Key": "d/key"})
    assert "Signature" in url
    source, file = file_of(url)
    assert file.path.endswith(f"/{s3_bucket}/d/key")
    assert file.etag == client.head_object(Bucket=s3_bucket, Key="d/key")["ETag"].strip('"')
    with source.open(file) as opened:
        assert opened.read() == DATA
