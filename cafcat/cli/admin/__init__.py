"""Verbs for the installation: configuration, completion, version."""
