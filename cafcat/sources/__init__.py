"""Sources: what is ingested."""
