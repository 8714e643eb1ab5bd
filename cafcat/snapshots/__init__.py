"""Snapshots: the locations of a catalog at one time, in one file, to read without its database."""

from cafcat.snapshots.snapshot import Snapshot

__all__ = ["Snapshot"]
