"""Opens the sources of an operation, yields their files in batches, and saves the positions of listings."""
