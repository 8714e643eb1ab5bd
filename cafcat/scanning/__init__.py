"""Opens the sources of an operation, yields their files in batches, and saves how far listings were processed."""
