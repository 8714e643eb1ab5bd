"""The catalog: the Postgres database, and the only room with SQL."""
