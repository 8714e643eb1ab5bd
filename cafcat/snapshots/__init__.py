"""Snapshots: one file with the locations of packed files at one moment, to read these without the database."""

from cafcat.snapshots.snapshot import Snapshot

__all__ = ["Snapshot"]
