"""Fill an empty catalog from a backup."""
