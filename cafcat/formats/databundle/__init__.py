"""The archive format DataBundle, a design of dennisss/dacha: shard files of records, which are usually compressed.

See docs/formats/databundle.md.
"""

from cafcat.formats.databundle.format import DATABUNDLE, DataBundleFormat

__all__ = ["DATABUNDLE", "DataBundleFormat"]
