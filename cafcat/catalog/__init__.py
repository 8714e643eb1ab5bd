"""The catalog: the PostgreSQL database that locates every file. Its tables, and the queries on them."""
