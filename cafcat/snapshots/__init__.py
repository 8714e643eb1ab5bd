"""Snapshots: files with the locations of packed files at one moment, for programs that read without a database."""

from cafcat.snapshots.snapshot import Snapshot

__all__ = ["Snapshot"]
