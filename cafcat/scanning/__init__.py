"""Sources from what was typed, their files in batches, and how far they were gone through."""
