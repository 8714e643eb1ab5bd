"""Snapshots: a catalog as it was at one moment, in one file, read without its database."""

from cafcat.snapshots.snapshot import Snapshot

__all__ = ["Snapshot"]
