"""Move a store to another URL, or migrate its objects to another store."""
