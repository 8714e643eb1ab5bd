"""Finish or remove the leftovers of writers that died."""
