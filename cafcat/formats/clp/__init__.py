"""The archive format clp-s (y-scope/clp) of compressed logs: its container, its metadata and its program.

See docs/formats/clp.md.
"""

from cafcat.formats.clp.format import CLP, ClpFormat

__all__ = ["CLP", "ClpFormat"]
