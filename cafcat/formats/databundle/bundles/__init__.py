"""Reads and writes bundles of DataBundle's published design: folders of shard files with one index."""
