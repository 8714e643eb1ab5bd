"""The kinds of sources, by URL scheme. The module of a kind is imported when the kind is first looked up.

Paths, file:// URLs and tar archives are not registered here: `cafcat/scanning/opening.py` opens them. A third-party
package registers a kind as an entry point of the group `cafcat.sources`. Its name is the URL scheme, its value a
SourceKind.
"""

import re
from typing import Final, cast

from cafcat.sources.kind import SourceKind
from cafcat.support.plugins import find_plugin

__all__ = ["find_kind", "scheme_of"]

_BUILT_IN: Final = {
    "az": "cafcat.sources.clouds.kind:CLOUD",
    "gs": "cafcat.sources.clouds.kind:CLOUD",
    "http": "cafcat.sources.http.kind:HTTP",
    "https": "cafcat.sources.http.kind:HTTP",
    "s3": "cafcat.sources.s3.kind:S3",
}
_GROUP: Final = "cafcat.sources"

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def scheme_of(text: str) -> str | None:
    """Return the scheme of a URL in lower case. None for a path, and for a file:// URL, which stands for a path."""
    match = _SCHEME.match(text)
    scheme = None if match is None else match[1].lower()
    return None if scheme == "file" else scheme


def find_kind(scheme: str) -> SourceKind | None:
    """Return the kind of source for a scheme in lower case; None if no kind is registered for the scheme.

    Callers treat a text with an unknown scheme as a path.
    """
    return cast("SourceKind | None", find_plugin(_GROUP, scheme, _BUILT_IN))
