"""The archive format clp-s (y-scope/clp), of compressed logs: the container and its metadata.

See docs/formats/clp.md.
"""

from cafcat.formats.clp.format import CLP, ClpFormat

__all__ = ["CLP", "ClpFormat"]
