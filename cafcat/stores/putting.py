"""Writes an object under a key whose content is the same for every writer."""

from collections.abc import Callable, Iterable

from cafcat.errors import Conflict, StoreFailed
from cafcat.stores.base import Store, has

__all__ = ["put_once"]


def put_once(store: Store, key: str, content: Callable[[], Iterable[bytes]]) -> None:
    """Write an object. If the store already has an object with this key, that object stays as it is.

    Unfinished uploads that block the key are removed, because their writers are taken for dead. So the caller must
    hold a lock that excludes other living writers of this key.

    Args:
        store: The store to write into.
        key: Key of the object.
        content: Returns the blocks of the object. It is called once for each of at most two attempts.

    Raises:
        InvalidInput: The key is not allowed.
        StoreFailed: The store cannot write the object, or another process keeps writing it.
        AccessDenied: The store refuses the request.
        NotFound: There is no such bucket.
    """
    for _ in range(2):
        try:
            return _put(store, key, content())
        except Conflict:
            # Every writer of this key writes the same content: an existing object is the right one.
            if has(store, key):
                return None
            store.discard(key)
    raise StoreFailed("another process is writing this object", chunk=key, hint="run the command again later")


def _put(store: Store, key: str, blocks: Iterable[bytes]) -> None:
    upload = store.create(key)
    try:
        for block in blocks:
            upload.write(block)
        upload.commit()
    except BaseException:
        upload.abort()
        raise
