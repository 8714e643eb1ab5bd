"""Bundles of the published design: folders of shard files with one index."""
