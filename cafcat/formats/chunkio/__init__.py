"""ChunkIO (romkatv/ChunkIO): records with meters between them. See docs/formats/chunkio.md."""

from cafcat.formats.chunkio.format import CHUNKIO, ChunkIoFormat

__all__ = ["CHUNKIO", "ChunkIoFormat"]
