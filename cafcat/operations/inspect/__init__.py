"""List the entries of an archive."""
