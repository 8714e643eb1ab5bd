"""The archive format DataBundle (dennisss/dacha): compressed records in shard files.

See docs/formats/databundle.md.
"""

from cafcat.formats.databundle.format import DATABUNDLE, DataBundleFormat

__all__ = ["DATABUNDLE", "DataBundleFormat"]
