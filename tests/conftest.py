"""Fixtures for all tests; what they are made of is in services.py."""

from tests.services import (
    database_url,
    database_url_15,
    databases,
    databases_15,
    debian_server,
    empty_database_url,
    empty_database_url_15,
    postgres_server,
)

__all__ = [
    "database_url",
    "database_url_15",
    "databases",
    "databases_15",
    "debian_server",
    "empty_database_url",
    "empty_database_url_15",
    "postgres_server",
]
