"""Checks of the database server: reachable, schema, settings, link, clock, care of its tables."""

from collections.abc import Iterator
from typing import Final

from cafcat.catalog.health.server import TableFacts
from cafcat.catalog.layout import described
from cafcat.catalog.schema import HEAD_REVISION, outdated
from cafcat.errors import CafcatError
from cafcat.operations.doctor.examination import Examination, Reach
from cafcat.operations.doctor.found import Found, error, failed, ok, warning
from cafcat.settings.database import redacted

__all__ = [
    "clock",
    "durability",
    "encoding",
    "layout",
    "limits",
    "link",
    "pooler",
    "reachable",
    "schema",
    "transactions",
    "vacuum",
]

_LEAST_CONNECTIONS: Final = 20
_LEAST_MILLISECONDS: Final = 60_000
"""Shortest time limit of the server that is no obstacle to a listing of a large catalog."""
_CLOCK_WARNING_SECONDS: Final = 5.0
_CLOCK_ERROR_SECONDS: Final = 300.0
"""S3 refuses requests whose time is 15 minutes off. A third of that is certainly wrong."""
_WRITTEN_OFF: Final = 2_000_000_000
"""Age of transactions at which PostgreSQL is about to stop writing (at 2^31 - 3,000,000)."""
_LEAST_ROWS: Final = 100_000
"""Queries of a smaller table are quick with any plan. The embedded server may stop before autovacuum reads it."""
_MOST_DEAD: Final = 0.3
_MOST_NEW_ROWS: Final = 3_000_000
"""Three times what makes autovacuum read new rows (catalog/tables.py)."""
_LONG_TRANSACTION_SECONDS: Final = 3600.0
_ALTER: Final = "set it in postgresql.conf, or by ALTER SYSTEM, and reload the server"


def reachable(examination: Examination) -> Iterator[Found]:
    """Connect to the database. An embedded server that is stopped is started; none is created."""
    settings, database = examination.settings, examination.database
    if not database.exists:
        remedy = "the first command that needs a database makes it; to use your own server, set database_url"
        yield warning(f"there is no embedded database in {settings.home} yet", remedy)
        return
    try:
        identity = examination.catalog.server.identity()
    except CafcatError as reason:
        yield failed(reason, "check that the database server is running and that database_url is right")
        return
    if identity.is_standby:
        remedy = "point database_url to the primary, and read_database_url to this server"
        yield error("the database is a standby server, which cannot be written to", remedy)
    examination.reach = Reach.SERVER
    place = "embedded" if settings.database_url is None else redacted(settings.database_url)
    yield ok(f"PostgreSQL {identity.version} answers: {place}")


def schema(examination: Examination) -> Iterator[Found]:
    """Compare the revision of the schema with that of this cafcat."""
    found = examination.catalog.server.identity()
    if found.version_number < 140000:
        yield error(f"PostgreSQL {found.version} is too old", "upgrade the server to PostgreSQL 14 or newer")
    if found.revision == HEAD_REVISION:
        examination.reach = Reach.CATALOG
        yield ok(f"the schema has revision {found.revision}")
    elif examination.database.is_embedded and (found.revision is None or found.revision < HEAD_REVISION):
        text = f"the embedded database has revision {found.revision}, and {HEAD_REVISION} is needed"
        yield warning(text, "the next command that uses the database upgrades it, as does `cafcat db upgrade`")
    else:
        yield failed(outdated(found.revision), "run `cafcat db upgrade`")


def layout(examination: Examination) -> Iterator[Found]:
    """Look for an unfinished change of the layout of the table of files, which makes commits slower."""
    changes = examination.catalog.layout
    change = changes.change()
    if change is None:
        yield ok(f"layout of the table of files: {described(changes.partitions())}")
    else:
        text = f"a change of the table of files to {described(change.partitions)} is unfinished"
        command = f"cafcat db partition {change.partitions} --yes"
        yield warning(f"{text}, in the phase {change.phase}", f"continue an interrupted change with: {command}")


def encoding(examination: Examination) -> Iterator[Found]:
    """Check encoding and collation of the database, which the order of paths needs."""
    found = examination.catalog.server.identity()
    if found.encoding != "UTF8":
        remedy = "create a database with ENCODING 'UTF8' TEMPLATE template0, and restore a backup there"
        yield error(f"the encoding of the database is {found.encoding}, not UTF8", remedy)
    if not found.has_collation_c:
        yield error('the collation "C" is missing', "create the database again from template0")
    if found.encoding == "UTF8" and found.has_collation_c:
        yield ok(f'encoding UTF8, collation "C", time zone {found.time_zone}')


def durability(examination: Examination) -> Iterator[Found]:
    """Check the settings that keep committed transactions through a crash of the server."""
    found = examination.catalog.server.settings()
    if found["fsync"] == "off":
        text = "fsync is off: a crash of the database's machine can destroy the catalog"
        yield error(text, f"fsync = on: {_ALTER}")
    if found["synchronous_commit"] == "off":
        text = "synchronous_commit is off: a crash of the server loses the commits of the last moments"
        yield warning(text, f"synchronous_commit = on: {_ALTER}; or for the role: ALTER ROLE ... SET")
    if found["full_page_writes"] == "off":
        text = (
            "full_page_writes is off: a power failure can damage the catalog, except on a file system such as ZFS"
        )
        yield warning(text, f"full_page_writes = on: {_ALTER}")
    if [found[name] for name in ("fsync", "synchronous_commit", "full_page_writes")].count("off") == 0:
        yield ok("commits survive a crash of the server")


def limits(examination: Examination) -> Iterator[Found]:
    """Check limits of the server that stop commands of cafcat."""
    facts = examination.catalog.server
    found, problems = facts.settings(), []
    if not facts.may_write():
        problems.append(ok("this role may only read the catalog"))
    elif found["default_transaction_read_only"] == "on":
        remedy = "set it to off: ALTER ROLE ... SET default_transaction_read_only = off"
        problems.append(error("transactions can only read: default_transaction_read_only is on", remedy))
    if int(found["max_connections"]) < _LEAST_CONNECTIONS:
        text = f"max_connections is {found['max_connections']}, and each process of cafcat needs one or two"
        problems.append(warning(text, f"raise it to at least {_LEAST_CONNECTIONS}, or use a pooler"))
    if found["autovacuum"] == "off":
        remedy = f"autovacuum = on: {_ALTER}"
        problems.append(warning("autovacuum is off: tables grow, and searches by chunk become slow", remedy))
    for name in ("statement_timeout", "idle_in_transaction_session_timeout"):
        if 0 < int(found[name]) < _LEAST_MILLISECONDS:
            text = f"{name} is {int(found[name]) / 1000:g} s: listings, snapshots and exports of many files fail"
            problems.append(warning(text, f"raise it to a minute or more: ALTER ROLE ... SET {name} = '10min'"))
    yield from problems
    if not problems:
        yield ok(f"max_connections {found['max_connections']}, {facts.identity().connections} in use")


def link(examination: Examination) -> Iterator[Found]:
    """Check that a connection which leaves this host uses TLS, and checks the certificate of the server."""
    found = examination.catalog.server.link()
    if found.is_local:
        yield ok(f"the connection does not leave this host ({found.host or 'socket'})")
    elif not found.is_encrypted:
        text = (
            f"the connection to {found.host} is not encrypted: passwords and names of files can be read on the way"
        )
        yield warning(text, "turn TLS on in the server, and add sslmode=verify-full to database_url")
    elif found.sslmode not in ("verify-ca", "verify-full"):
        text = f"the connection to {found.host} uses TLS, but sslmode={found.sslmode} accepts any certificate"
        yield warning(text, "add sslmode=verify-full and sslrootcert=FILE (or system) to database_url")
    else:
        yield ok(f"the connection to {found.host} uses TLS, with sslmode={found.sslmode}")


def pooler(examination: Examination) -> Iterator[Found]:
    """Find out whether a pooler is in between, which must keep prepared statements apart."""
    if not examination.catalog.server.link().has_pooler:
        yield ok("no pooler")
    elif examination.settings.prepared_statements:
        text = "a pooler is in between, and look-ups use prepared statements"
        remedy = (
            "with PgBouncer from 1.21 on, set max_prepared_statements = 100; with other transaction poolers, set "
            "prepared_statements = false (docs/scale-pooling.md)"
        )
        yield warning(text, remedy)
    else:
        yield ok("a pooler is in between; look-ups are not prepared")


def clock(examination: Examination) -> Iterator[Found]:
    """Compare the clock of the database server with that of this host."""
    found = examination.catalog.server.clock()
    certain = abs(found.ahead_seconds) - found.error_seconds
    side = "ahead of" if found.ahead_seconds > 0 else "behind"
    text = f"the clock of the database is {abs(found.ahead_seconds):.3f} s {side} that of this host"
    remedy = "synchronize both clocks (chrony, systemd-timesyncd)"
    if certain > _CLOCK_ERROR_SECONDS:
        yield error(f"{text}: S3 refuses requests of a host whose clock is wrong", remedy)
    elif certain > _CLOCK_WARNING_SECONDS:
        yield warning(text, remedy)
    else:
        yield ok(f"{text} (within {found.error_seconds * 1000:.1f} ms)")


def vacuum(examination: Examination) -> Iterator[Found]:
    """Look for tables with many dead rows, without statistics, or with many rows that no vacuum has read."""
    problems = []
    for table in examination.catalog.server.tables(_LEAST_ROWS):
        command = f"echo 'VACUUM (ANALYZE) {table.name}' | cafcat sql"
        remedy = f"wait: autovacuum does so by itself, also in the embedded database; or run: {command}"
        rows = max(1, table.live_rows + table.dead_rows)
        if table.dead_rows > _LEAST_ROWS and table.dead_rows / rows > _MOST_DEAD:
            text = f"{table.dead_rows / rows:.0%} of the rows of {table.name} are dead"
            problems.append(warning(text, remedy))
        elif _lacks_statistics(table):
            problems.append(warning(f"the planner has no statistics of {table.name}", remedy))
        elif table.new_rows > _MOST_NEW_ROWS:
            text = (
                f"no vacuum has read the last {table.new_rows:,} rows of {table.name}: searches by chunk are slow"
            )
            problems.append(warning(text, remedy))
    yield from problems
    if not problems:
        yield ok("no table needs a vacuum")


def _lacks_statistics(table: TableFacts) -> bool:
    is_large = table.live_rows > _LEAST_ROWS
    return is_large and not table.is_analyzed and table.planned_rows < table.live_rows / 2


def transactions(examination: Examination) -> Iterator[Found]:
    """Check the age of transaction numbers, and look for a transaction that keeps dead rows from being removed."""
    found, problems = examination.catalog.server.transactions(), []
    age = max(found.frozen, found.frozen_multixacts)
    remedy = "run VACUUM FREEZE in the whole database, and find out what stops autovacuum"
    if age > _WRITTEN_OFF:
        problems.append(
            error(f"the oldest transaction number is {age:,} old: PostgreSQL soon refuses writes", remedy)
        )
    elif age > 2 * found.freeze_limit:
        problems.append(warning(f"the oldest transaction number is {age:,} old: autovacuum is late", remedy))
    if found.oldest_seconds is not None and found.oldest_seconds > _LONG_TRANSACTION_SECONDS:
        text = (
            f"a transaction is open for {found.oldest_seconds / 3600:.1f} hours: no vacuum removes newer dead rows"
        )
        query = "SELECT pid, application_name, xact_start FROM pg_stat_activity ORDER BY xact_start"
        problems.append(warning(text, f"find its program with: cafcat sql -c '{query}'"))
    yield from problems
    if not problems:
        yield ok(f"the oldest transaction number is {age:,} old")
