"""The embedded PostgreSQL server, for users who have no database of their own."""
