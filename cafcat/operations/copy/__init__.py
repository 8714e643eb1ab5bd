"""Copy chunks into another store."""
