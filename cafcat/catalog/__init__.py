"""The catalog: the PostgreSQL database that locates every file. All queries on it are in this package."""
