"""Compare two catalogs."""
