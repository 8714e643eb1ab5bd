"""clp-s single-file archives (y-scope/clp): the container, and what its metadata says. docs/formats/clp.md."""

from cafcat.formats.clp.format import CLP, ClpFormat

__all__ = ["CLP", "ClpFormat"]
