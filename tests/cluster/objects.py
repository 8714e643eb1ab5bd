"""The objects of a source, and the check that each of them was packed once."""

import asyncio
import hashlib
from collections.abc import Iterator, Mapping

import psycopg

from tests.crash.checker import look, problems
from tests.crash.places import Bucket
from tests.worlds.servers.s3_server import S3Server

__all__ = ["content", "keys", "left_over", "make_objects"]

PER_FOLDER = 1000
AT_ONCE = 64


def keys(count: int) -> Iterator[str]:
    for number in range(count):
        yield f"d{number // PER_FOLDER:05d}/f{number % PER_FOLDER:04d}.txt"


def content(key: str) -> bytes:
    """Return the content of an object: 1 to 4 KB that depend on its key."""
    digest = hashlib.sha256(key.encode()).digest()
    size = 1000 + int.from_bytes(digest[:2]) % 3000
    return (digest * (size // len(digest) + 1))[:size]


def make_objects(server: S3Server, bucket: str, count: int) -> None:
    from obstore.store import S3Store

    server.client().create_bucket(Bucket=bucket)
    to = S3Store(
        bucket,
        endpoint=server.endpoint_url,
        access_key_id=server.access_key,
        secret_access_key=server.secret_key,
        region=server.region,
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )
    asyncio.run(_put(to, iter(keys(count))))


async def _put(to: object, left: Iterator[str]) -> None:
    import obstore

    async def work() -> None:
        for key in left:
            await obstore.put_async(to, key, content(key), use_multipart=False)  # type: ignore[arg-type]

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


def left_over(database_url: str, server: S3Server, bucket: str, expected: Mapping[str, bytes]) -> list[str]:
    """Return what is wrong with the catalog and the store at the end, as sentences."""
    seen = look(database_url, [Bucket(server, bucket)])
    found = problems(seen)
    missing, further = expected.keys() - seen.live.keys(), seen.live.keys() - expected.keys()
    found += [f"{len(missing)} objects are missing, such as {min(missing)}"] if missing else []
    found += [f"{len(further)} files are no objects, such as {min(further)}"] if further else []
    wrong = [path for path, data in expected.items() if seen.live.get(path, data) != data]
    found += [f"{len(wrong)} files have another content, such as {wrong[0]}"] if wrong else []
    retired = len(seen.tables["retired_locations"])
    found += [f"{retired} files were packed twice"] if retired else []
    return found + _unfinished_shards(database_url)


def _unfinished_shards(database_url: str) -> list[str]:
    with psycopg.connect(database_url) as connection:
        query = "SELECT id, state, attempts FROM shards WHERE state <> 'finished' ORDER BY id"
        return [
            f"shard {number} is {state} after {tries} attempts"
            for number, state, tries in connection.execute(query)
        ]
