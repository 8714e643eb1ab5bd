"""Ingest: scan, decide, pack, commit."""
