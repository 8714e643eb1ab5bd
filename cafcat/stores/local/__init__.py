"""Stores in folders of a local file system."""
