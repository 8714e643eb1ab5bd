"""Rows of files: look-ups, changes, listings and removals of paths."""
