"""Writes one chunk: its row in the catalog, its object, its mapping and its journal record."""
