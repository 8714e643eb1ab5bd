"""DataBundle (dennisss/dacha): compressed records in shard files. All about it: docs/formats/databundle.md."""

from cafcat.formats.databundle.format import DATABUNDLE, DataBundleFormat

__all__ = ["DATABUNDLE", "DataBundleFormat"]
