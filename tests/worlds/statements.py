"""Lists the statements that a repository sends to its database."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import cafcat

__all__ = ["statements"]


@contextmanager
def statements(repository: cafcat.Repository, trace: Path) -> Iterator[list[str]]:
    """Yield a list that gets the statements that are executed meanwhile, as libpq sends them."""
    executed: list[str] = []
    with trace.open("wb+") as file:
        with repository.session.catalog._connection.statement() as connection:
            connection.pgconn.trace(file.fileno())
        yield executed
        with repository.session.catalog._connection.statement() as connection:
            connection.pgconn.untrace()
    sent = [line.split("\t") for line in trace.read_text().splitlines() if "\tF\t" in line]
    executed += [line[3] for line in sent if line[3] in ("Execute", "Query")]
