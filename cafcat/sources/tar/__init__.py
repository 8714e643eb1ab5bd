"""Tar archives as sources."""
