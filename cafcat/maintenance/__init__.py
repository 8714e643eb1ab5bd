"""Comparing catalog, chunks and stores, and mending."""
