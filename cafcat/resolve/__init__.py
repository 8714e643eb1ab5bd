"""Resolve: path to location to bytes, and whole trees back to disk."""
