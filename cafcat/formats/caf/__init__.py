"""The archive format CAF 1.0, the default format of new chunks. See docs/formats/caf.md."""

from cafcat.formats.caf.format import CAF

__all__ = ["CAF"]
