"""Verbs for archives as files."""
