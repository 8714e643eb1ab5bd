"""Replace damaged chunks by new chunks with the right bytes."""
