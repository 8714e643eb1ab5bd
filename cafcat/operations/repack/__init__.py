"""Copy the live files of chunks with dead space into new chunks."""
