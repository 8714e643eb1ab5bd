"""The check of the read replica."""

from collections.abc import Iterator

from cafcat.errors import CafcatError, InvalidInput
from cafcat.operations.doctor.examination import Examination
from cafcat.operations.doctor.found import Found, failed, ok, warning
from cafcat.operations.doctor.report import Level
from cafcat.support.quantities import format_size

__all__ = ["replica"]


def replica(examination: Examination) -> Iterator[Found]:
    """Compare the read replica with the primary: the same catalog, and not too far behind."""
    settings = examination.settings
    if settings.read_database_url is None:
        yield ok("no read replica is set")
        return
    from cafcat.catalog.database_url import DatabaseUrl

    try:
        lag = examination.catalog.replica_lag(DatabaseUrl(settings.read_database_url))
    except InvalidInput as reason:
        yield failed(reason, "compare database_url and read_database_url")
        return
    except CafcatError as reason:
        yield failed(
            reason, "check the standby server; until then, the primary answers all look-ups", Level.WARNING
        )
        return
    behind = f"the read replica is {format_size(lag.size_bytes)} of log behind"
    if lag.seconds is None or lag.seconds <= settings.max_staleness:
        yield ok(behind)
    else:
        text = f"{behind}: {lag.seconds:.0f} s, and max_staleness is {settings.max_staleness} s"
        yield warning(text, "find out what delays its replay; until then, the primary answers all look-ups")
