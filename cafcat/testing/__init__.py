"""Conformance suites for formats, stores and sources.

Inherit a suite, override its fixtures, and run pytest.
"""
