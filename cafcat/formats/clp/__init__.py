"""clp-s single-file archives (y-scope/clp): the container and its metadata. See docs/formats/clp.md."""

from cafcat.formats.clp.format import CLP, ClpFormat

__all__ = ["CLP", "ClpFormat"]
