"""CAF 1.0, the format of new chunks by default: docs/formats/caf.md."""

from cafcat.formats.caf.format import CAF

__all__ = ["CAF"]
