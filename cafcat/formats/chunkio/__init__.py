"""The archive format ChunkIO of the program romkatv/ChunkIO: a file of records, and meters at fixed positions.

A meter stores the start of the record that it lies in. See docs/formats/chunkio.md.
"""

from cafcat.formats.chunkio.format import CHUNKIO, ChunkIoFormat

__all__ = ["CHUNKIO", "ChunkIoFormat"]
