"""Enter existing archives into the catalog."""
