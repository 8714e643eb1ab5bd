"""Writes a small object in one go, under a key that always has the same content."""

from collections.abc import Callable, Iterable

from cafcat.errors import Conflict, StoreFailed
from cafcat.stores.base import Store, has

__all__ = ["put_once"]


def put_once(store: Store, key: str, content: Callable[[], Iterable[bytes]]) -> None:
    """Write an object. If the store has its key already, the object stays as it is.

    Unfinished uploads of the key, which dead writers left, are removed. So the caller must hold a lock that
    excludes other living writers of this key.

    Args:
        store: The store to write into.
        key: Key of the object.
        content: Returns the blocks of the object. It is called again for a second attempt.

    Raises:
        InvalidInput: The key is not allowed.
        StoreFailed: The store cannot write the object, or another process keeps writing it.
        AccessDenied: The store refuses the request.
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
