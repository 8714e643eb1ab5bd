"""Stores in folders of the local file system."""
