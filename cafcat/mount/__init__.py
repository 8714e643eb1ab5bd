"""Packed files as a read-only file system of the operating system."""
