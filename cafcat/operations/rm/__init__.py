"""Remove files from the catalog."""
