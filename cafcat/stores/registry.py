"""The kinds of stores, by URL scheme.

The module of a kind is imported when the kind is first looked up by its scheme.

A third-party package registers a kind as an entry point of the group `cafcat.stores`. The scheme is the name of
the entry point, and a StoreKind is its value.
"""

import re
from typing import Final, cast

from cafcat.errors import InvalidInput, Unsupported
from cafcat.stores.base import Store
from cafcat.stores.kind import StoreContext, StoreKind
from cafcat.support.plugins import find_plugin, plugin_names

__all__ = ["find_kind", "kind_of", "open_store", "shown_schemes"]

_BUILT_IN: Final = {
    "az": "cafcat.stores.clouds.kind:AZURE",
    "file": "cafcat.stores.local.kind:LOCAL",
    "gs": "cafcat.stores.clouds.kind:GOOGLE",
    "s3": "cafcat.stores.s3.kind:S3",
}
_GROUP: Final = "cafcat.stores"
_PATHS: Final = "file"
"""The scheme whose kind also opens plain paths."""

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?=/)")
_LIKE_A_URL: Final = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]+):(/)?")


def open_store(url_or_path: str, context: StoreContext | None = None) -> Store:
    """Return the store at a URL or path. This sends no request: the store may be missing.

    Args:
        url_or_path: "file:///srv/chunks", "s3://bucket/prefix", "gs://bucket/prefix", "az://container/prefix", a
            URL of a third-party kind, or a plain path.
        context: Values that the settings provide for this store. None: the defaults of StoreContext.

    Raises:
        Unsupported: No kind of store has the scheme of the URL.
        InvalidInput: This is not the URL or path of a store.
    """
    if not url_or_path or "\0" in url_or_path:
        raise InvalidInput(f"not a store: {url_or_path!r}", hint="give a folder, or a URL as file:///folder")
    return kind_of(url_or_path).open(url_or_path, StoreContext() if context is None else context)


def kind_of(url_or_path: str) -> StoreKind:
    """Return the kind of store for the scheme of a URL, or for a path. Raises Unsupported for an unknown scheme."""
    match = _SCHEME.match(url_or_path)
    scheme = _PATHS if match is None else match[1]
    kind = cast("StoreKind | None", find_plugin(_GROUP, scheme.lower(), _BUILT_IN))
    if kind is None:
        message = f"there is no kind of store for the scheme {scheme!r}: {url_or_path}"
        raise Unsupported(message, hint=f"the installed kinds of stores are: {shown_schemes()}")
    return kind


def find_kind(text: str) -> StoreKind | None:
    """Return the kind of store that a text from the settings belongs to.

    A text that begins with the scheme of a kind belongs to this kind, even if it is not a valid URL, as "s3:bucket"
    or " s3://bucket". `StoreKind.normal_url` of the kind then refuses the text.

    Returns:
        The kind; None for a path, for "file:" without "/", such as "file:name", and for a URL with an unknown
        scheme.
    """
    match = _LIKE_A_URL.match(text)
    if match is None or (match[2] is None and match[1].lower() == _PATHS):
        return None
    return cast("StoreKind | None", find_plugin(_GROUP, match[1].lower(), _BUILT_IN))


def shown_schemes() -> str:
    """Return the schemes of all kinds for messages: "az://, file://, gs://, s3://"."""
    return ", ".join(f"{scheme}://" for scheme in plugin_names(_GROUP, _BUILT_IN))
