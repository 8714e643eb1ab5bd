"""Servers that tests start: PostgreSQL, S3, HTTP, and a proxy that breaks S3 requests."""
