"""A transaction that reads, and gives up soon: checks of the health of a database must not add to its load."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cafcat.catalog.connection import Connection, PgConnection

__all__ = ["brief_read"]

_LONGEST_STATEMENT: Final = "5s"


@contextmanager
def brief_read(connection: Connection, *, check: bool = True) -> Iterator[PgConnection]:
    """Open a transaction that only reads, in which a statement may take 5 seconds.

    Args:
        connection: The connection.
        check: Check the revision of the schema, once per connection.

    Raises:
        CatalogOutdated: The database has no schema, or one of another revision.
        CatalogUnavailable: The database does not answer, or a statement took longer.
        AccessDenied: The server rejects user and password.
        InvalidInput: The URL of the database cannot be read.
    """
    with connection.statement(check=check, read_only=True) as opened, opened.transaction():
        opened.execute("SET TRANSACTION READ ONLY")
        opened.execute(f"SET LOCAL statement_timeout = '{_LONGEST_STATEMENT}'")
        opened.execute(f"SET LOCAL lock_timeout = '{_LONGEST_STATEMENT}'")
        yield opened
