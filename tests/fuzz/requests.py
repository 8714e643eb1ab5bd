"""Odd requests for both sides of `cafcat serve`, from random numbers: HTTP, and the S3 protocol with signatures."""

import json
import time
from collections.abc import Mapping
from random import Random
from urllib.parse import quote

from tests.worlds.aws_signing import Signer

__all__ = ["FILES", "HIDDEN", "http_request", "marker", "s3_request"]

HIDDEN = ("secret/", "mine2/")
"""Folders of FILES that the access key of the S3 requests cannot see."""


def marker(path: str) -> bytes:
    """Return bytes of which the content of a file consists, and that no other file has."""
    return f"<{quote(path, safe='')}>".encode()


def _content(path: str, repeats: int) -> bytes:
    return marker(path) * repeats


FILES = {
    path: _content(path, repeats)
    for path, repeats in {
        "mine/a": 2,
        "mine/sub/b.txt": 3,
        "mine/sub/deep/c.json": 400,
        "mine/odd/日本 é": 4,
        "mine/odd/100%_x*?[a]": 5,
        "mine/odd/new\nline": 6,
        "mine/empty": 0,
        "mine/large": 150_000,
        "mine2/file": 7,
        "secret/file": 8,
    }.items()
}
"""Contents by path. The large one is streamed."""
_SMALL = [path for path in FILES if path != "mine/large"]

ODD = ["..", "%2e%2e", "%2e%2e%2f", "%00", "%c0%ae", "%c0%af", "%ff", "//", "%", "%u0041", "+", "&", "=", ";", "?"]
ODD += ["#", "a" * 3000, "%ed%a0%80", "secret/file", "../secret/file", "%0d%0a", "\r\n", "\x7f", "\xe9", " ", "\0"]
ODD += ["%F4%8F%BF%BF", "~", "\\", "/.", "/./", "mine/a", "mine2/file", ":", "@", "*", "\t", "HTTP/1.1", ","]
RANGES = [
    *["bytes=0-0", "bytes=-1", "bytes=1-9"] * 3,
    "bytes=9-",
    "bytes=" + "9" * 40 + "-",
    "bytes=1-0",
    "bytes=0-1,2-3",
    "x" * 3000,
]
RANGES += ["bytes=0-1,5-", "bytes=-0", "bytes=", "lines=1-2", "bytes=" + "0-0," * 70, "bytes=5-,0-4"]
TAGS = ["*", '"x"', "W/", ",,,", "ETag", "\xff", "x" * 3000]
TIMES = [
    "Sat, 21 Nov 2026 10:00:00 GMT",
    "Sat, 99 Nov 99999 10:00:00 -9999",
    "Sat, 21 Nov 2099 10:00:00 GMT",
    "0",
    "",
]
CONDITIONS = {
    "Range": RANGES,
    "If-Match": TAGS,
    "If-None-Match": TAGS,
    "If-Modified-Since": TIMES,
    "If-Unmodified-Since": TIMES,
    "If-Range": [*TAGS, *TIMES],
}
HTTP_HEADERS = CONDITIONS | {
    "Accept": ["application/json", "text/html", "*/*", "\xff", ",;q=", "text/html;q=0, application/json"],
    "Cafcat-Redirect": ["1", ""],
    "Content-Length": ["0", "3", "-1", "9" * 30, "0x3", "+3", "3, 3"],
    "Content-Type": ["application/json", "text/plain", "multipart/form-data", ""],
    "Transfer-Encoding": ["chunked", "identity", "gzip, chunked", "chunked, chunked", "\x0bchunked"],
    "Expect": ["100-continue", "200-ok"],
    "Upgrade": ["websocket", "h2c"],
    "Connection": ["close", "upgrade", "keep-alive", "close, upgrade", "x" * 3000],
    "Host": ["y", "", "a" * 3000],
    "X": ["1", "a" * 33_000],
}
_HARMLESS = CONDITIONS | {name: HTTP_HEADERS[name] for name in ("Accept", "Cafcat-Redirect", "Expect")}
S3_HEADERS = CONDITIONS | {
    "x-amz-checksum-mode": ["ENABLED", "enabled", "?"],
    "x-amz-object-attributes": ["ETag", "Checksum,ObjectSize", "nothing", ","],
}
QUERIES = [
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "?download",
    "?redirect",
    "?limit=1",
    "?limit=0",
    "?limit=" + "9" * 30,
    "?format=json",
]
QUERIES += [
    "?format=xml",
    "?after=a",
    "?after=%00",
    "?after=%ff&limit=1",
    "?after=../&format=json",
    "?" + "a=1&" * 20,
]
QUERIES += [
    "?format=json&limit=1&after=sub/",
    "?on_error=skip",
    "?format=zip",
    "?format=zip&on_error=skip",
    "?=&=&",
]
METHODS = ["GET"] * 16 + ["HEAD", "HEAD", "POST", "PUT", "OPTIONS", "DELETE", "TRACE", "PRI", "CONNECT", "get"]
NAMES = ["prefix", "delimiter", "marker", "max-keys", "list-type", "continuation-token", "start-after", "versions"]
NAMES += ["encoding-type", "fetch-owner", "key-marker", "version-id-marker", "versionId", "partNumber", "location"]
NAMES += [
    "attributes",
    "response-content-type",
    "response-expires",
    "acl",
    "uploads",
    "max-buckets",
    "X-Amz-Expires",
]
VALUES = ["", "0", "-1", "1", "2", "1000", "9" * 30, "url", "true", "null", "/", "%F4%8F%BF%BF", "c2VjcmV0", "a"]
VALUES += [odd for odd in ODD if not set(odd) & set(" \r\n\t")]
S3_TARGETS = ["/", "/mine", "/mine/", "/mine/a", "/secret/file", "/mine2/file", "/mine/sub/b.txt", "/mine/empty"]


def http_request(random: Random) -> bytes:
    """Return a request to the HTTP side, in most cases with changed bytes."""
    if random.random() < 0.12:
        request = _batch(random)
    else:
        headers = _some(random, HTTP_HEADERS if random.random() < 0.3 else _HARMLESS)
        request = _written(random.choice(METHODS), _http_target(random), headers)
        if random.random() < 0.1:
            request += random.choice([b"[1]", b"3\r\n[1]\r\n0\r\n\r\n"])
    return changed(random, request) if random.random() < 0.5 else request


def _http_target(random: Random) -> str:
    path = (
        "mine/large"
        if random.random() < 0.01
        else random.choice([*_SMALL, "none", "mine/", "", "mine", "mine/sub/"])
    )
    others = ["/batch", "/healthz", "/metrics", "/openapi.json", "/", "/files", "*", "http://x/files/mine/a"]
    target = random.choice(others) if random.random() < 0.1 else "/files/" + quote(path)
    if random.random() < 0.3:
        place = random.randint(1, len(target))
        target = target[:place] + random.choice(ODD) + target[place:]
    return target + random.choice(QUERIES)


def _batch(random: Random) -> bytes:
    """Return a request for a batch. Few have a wrong Content-Length, because the server waits for the rest."""
    paths = [random.choice([*_SMALL, *_SMALL, "none", *ODD, "x" * 3000]) for _ in range(random.randrange(5))]
    document = random.choice(
        [paths, {"paths": paths}, {"paths": paths, "on_error": "skip", "format": "zip"}, {}, [1]]
    )
    body = "\n".join(paths).encode() if random.random() < 0.3 else json.dumps(document).encode()
    if random.random() < 0.5:
        body = changed(random, body or b"[")
    kind = random.choice(HTTP_HEADERS["Content-Type"])
    length = len(body) + (random.choice([-1, 1, 50]) if random.random() < 0.02 else 0)
    query = random.choice(
        ["", "?format=zip", "?on_error=skip", "?format=zip&on_error=skip", "?format=a", "?on_error="]
    )
    return _written("POST", "/batch" + query, {"Content-Type": kind, "Content-Length": str(length)}) + body


def s3_request(random: Random, signer: Signer, host: str) -> bytes:
    """Return a request to the S3 side: signed with odd parts, or signed and then changed, or not signed."""
    kind = random.random()
    if kind < 0.5:
        method, target = random.choice(["GET", "GET", "GET", "HEAD"]), _s3_target(random)
        headers = {"Host": host} | _some(random, S3_HEADERS)
        try:
            return _written(method, target, signer.headers(method, target, headers, time.time()))
        except ValueError:  # a query that cannot be parsed cannot be signed
            return _written(method, target, headers)
    if kind < 0.7:
        return changed(random, _written("GET", signer.presigned("/mine/a", host, time.time()), {"Host": host}))
    if kind < 0.9:
        target = random.choice(["/mine?prefix=a", "/mine/sub/b.txt", "/mine?versions", "/secret/file", "/"])
        return changed(random, _written("GET", target, signer.headers("GET", target, {"Host": host}, time.time())))
    request = _written(random.choice(METHODS), _s3_target(random), _some(random, HTTP_HEADERS | S3_HEADERS))
    return changed(random, request) if random.random() < 0.5 else request


def _s3_target(random: Random) -> str:
    target = "/mine/large" if random.random() < 0.01 else random.choice([*S3_TARGETS, "/" + random.choice(VALUES)])
    for _ in range(random.choice([0, 0, 0, 0, 1, 2])):
        place = random.randint(1, len(target))
        target = target[:place] + random.choice(VALUES).replace("?", "%3f").replace("#", "%23") + target[place:]
    pairs = [f"{random.choice(NAMES)}={random.choice(VALUES)}" for _ in range(random.choice([0, 0, 1, 2, 4]))]
    return target + ("?" + "&".join(pairs).replace("#", "%23") if pairs else "")


def _some(random: Random, headers: Mapping[str, list[str]]) -> dict[str, str]:
    names = random.sample(list(headers), random.choice([0, 0, 1, 1, 2, 3]))
    return {name: random.choice(headers[name]) for name in names}


def _written(method: str, target: str, headers: Mapping[str, str]) -> bytes:
    given = {"Host": "x"} | dict(headers)
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")


def changed(random: Random, data: bytes) -> bytes:
    """Return the bytes after one to three changes: bytes set, removed, repeated or inserted."""
    for _ in range(random.randint(1, 3)):
        place, length = random.randrange(len(data) or 1), random.randint(1, 20)
        old = data[place : place + length]
        new = {
            "set": bytes([random.randrange(256)]) + old[1:],
            "remove": b"",
            "repeat": old * 2,
            "insert": random.choice(ODD).encode("latin-1", "replace") + old,
        }[random.choice(["set", "remove", "repeat", "insert"])]
        data = data[:place] + new + data[place + length :]
    return data
