"""ChunkIO (romkatv/ChunkIO): records between meters. Layout, rules and deviations: docs/formats/chunkio.md."""

from cafcat.formats.chunkio.format import CHUNKIO, ChunkIoFormat

__all__ = ["CHUNKIO", "ChunkIoFormat"]
