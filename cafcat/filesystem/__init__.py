"""Packed files as a file system of fsspec."""
