"""Copy chunks into a further store."""
