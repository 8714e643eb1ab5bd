"""Compare chunks, copies and sources with the catalog."""
