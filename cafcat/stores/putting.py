"""Writing a small object whole, once: under a key that only ever has this one content."""

from collections.abc import Callable, Iterable

from cafcat.errors import Conflict, StoreFailed
from cafcat.stores.base import Store, has

__all__ = ["put_once"]


def put_once(store: Store, key: str, content: Callable[[], Iterable[bytes]]) -> None:
    """Write an object, or leave it as it is if the store has its key already.

    An upload of this key that a dead writer left is removed. So the caller holds a lock that keeps living
    writers of the key away.

    Args:
        store: where the object goes.
        key: its key.
        content: returns its blocks; called again for a second attempt.

    Raises:
        StoreFailed: the store did not take the object.
    """
    for _ in range(2):
        try:
            return _put(store, key, content())
        except Conflict:
            # The key is only ever this object's: if an object is there, it is the very same.
            if has(store, key):
                return None
            store.discard(key)
    raise StoreFailed("another process writes this object", chunk=key)


def _put(store: Store, key: str, blocks: Iterable[bytes]) -> None:
    upload = store.create(key)
    try:
        for block in blocks:
            upload.write(block)
        upload.commit()
    except BaseException:
        upload.abort()
        raise
