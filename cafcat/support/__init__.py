"""Helpers for files and processes of the operating system, used by every layer above."""
