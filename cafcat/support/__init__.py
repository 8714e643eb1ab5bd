"""Helpers for files of the operating system, used by every layer above."""
