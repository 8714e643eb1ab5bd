"""Verbs that read files of the catalog."""
