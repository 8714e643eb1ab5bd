"""Rows of files: look-ups, listings, changes and removals of paths."""
