"""The table of all checks, in the order in which they run."""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from cafcat.operations.doctor import (
    configuration,
    custody,
    database,
    installation,
    leftovers,
    replica,
    space,
    stores,
)
from cafcat.operations.doctor.examination import Examination, Reach
from cafcat.operations.doctor.found import Found

__all__ = ["CHECKS", "Check"]


class Check(NamedTuple):
    """One check.

    Attributes:
        name: Name of the check, as users see it.
        function: Yields what it finds. It changes nothing. An exception of cafcat, or an OSError, is an error, too.
        needs: How much of the database it needs. With less, it is skipped.
    """

    name: str
    function: Callable[[Examination], Iterable[Found]]
    needs: Reach = Reach.NOTHING


CHECKS: Final = (
    Check("python", installation.python),
    Check("libraries", installation.libraries),
    Check("native code", installation.native_code),
    Check("programs", installation.programs),
    Check("settings", configuration.contradictions),
    Check("environment", configuration.environment),
    Check("secrets", configuration.secrets),
    Check("home space", space.home),
    Check("database", database.reachable),
    Check("schema", database.schema, Reach.SERVER),
    Check("encoding", database.encoding, Reach.SERVER),
    Check("durability", database.durability, Reach.SERVER),
    Check("limits", database.limits, Reach.SERVER),
    Check("link", database.link, Reach.SERVER),
    Check("pooler", database.pooler, Reach.SERVER),
    Check("clock", database.clock, Reach.SERVER),
    Check("vacuum", database.vacuum, Reach.SERVER),
    Check("transactions", database.transactions, Reach.SERVER),
    Check("layout", database.layout, Reach.CATALOG),
    Check("replica", replica.replica, Reach.CATALOG),
    Check("stores", stores.stores),
    Check("store space", space.stores),
    Check("catalog", custody.catalog, Reach.CATALOG),
    Check("writers", leftovers.writers, Reach.NUMBERS),
    Check("runs", leftovers.runs, Reach.NUMBERS),
    Check("shards", leftovers.shards, Reach.NUMBERS),
    Check("journal", leftovers.journal, Reach.NUMBERS),
    Check("damage", custody.damage, Reach.NUMBERS),
    Check("verification", custody.verification, Reach.NUMBERS),
    Check("copies", custody.copies, Reach.NUMBERS),
    Check("backup", custody.backup, Reach.NUMBERS),
)
"""All checks. Those that need more of the database come after those that reach it."""
