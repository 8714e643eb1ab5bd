"""Tests the features of a store for `cafcat store check`."""

import uuid
from collections.abc import Iterator
from typing import NamedTuple

from cafcat.errors import CafcatError, Conflict, NotFound, StoreFailed
from cafcat.stores.base import ProbedStore, Store

__all__ = ["Finding", "probe"]

_DATA = b"cafcat tests this store\n"


class Finding(NamedTuple):
    """Result of the test of one feature of a store.

    Attributes:
        feature: The tested feature.
        works: True if the store behaves as cafcat expects; None if that could not be tested.
        detail: How the store behaved.
        remedy: How cafcat works around a feature that does not work, or what to do; "" if neither is
            needed.
        is_needed: True if cafcat cannot use the store without this feature.
    """

    feature: str
    works: bool | None
    detail: str = ""
    remedy: str = ""
    is_needed: bool = False


def probe(store: Store) -> Iterator[Finding]:
    """Test a store with test objects, which are removed afterwards. Yield a finding for each feature.

    Raises:
        NotFound: There is no such bucket.
        AccessDenied: The store refuses the credentials.
        StoreFailed: The store does not answer, or cannot be written.
    """
    yield from store.probe() if isinstance(store, ProbedStore) else _probe_with_one_object(store)


def _probe_with_one_object(store: Store) -> Iterator[Finding]:
    key = f"cafcat-check-{uuid.uuid4()}"
    try:
        yield _needed("writing", _write(store, key))
        yield _needed("reading", store.read(key, 7, 12) == _DATA[7:12])
        yield _needed("listing", key in (found.key for found in store.list()))
        yield Finding("conditional writes", _refuses_second(store, key))
    finally:
        store.discard(key)
        store.delete(key)


def _needed(feature: str, works: bool) -> Finding:
    return Finding(feature, works, is_needed=True)


def _write(store: Store, key: str) -> bool:
    upload = None
    try:
        upload = store.create(key)
        upload.write(_DATA)
        upload.commit()
    except CafcatError as error:
        if upload is not None:
            upload.abort()
        if isinstance(error, NotFound):  # the bucket or container
            raise
        raise StoreFailed(f"cannot write to {store.url}: {error.message}") from error
    return True


def _refuses_second(store: Store, key: str) -> bool:
    try:
        return not _write(store, key)
    except StoreFailed as error:
        return isinstance(error.__cause__, Conflict)
