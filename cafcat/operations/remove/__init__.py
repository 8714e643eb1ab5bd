"""Remove files from the catalog, and bring removed files back."""
