"""The archive format ChunkIO (romkatv/ChunkIO): records, with meters (backward pointers) at fixed positions.

See docs/formats/chunkio.md.
"""

from cafcat.formats.chunkio.format import CHUNKIO, ChunkIoFormat

__all__ = ["CHUNKIO", "ChunkIoFormat"]
