"""Conformance suites for formats, stores and sources: inherit one, name your class in a fixture, run pytest."""
