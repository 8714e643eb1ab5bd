"""The tables of the catalog, in SQLAlchemy Core.

Alembic generates migrations from these definitions, and a test compares them with the migrated schema. The queries
in the other modules are plain SQL that psycopg executes. Thus operators can run the same text by hand, and a
look-up does not have to import SQLAlchemy (docs/decisions/0002).
"""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Numeric,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

__all__ = [
    "STORAGE",
    "access_keys",
    "backups",
    "catalog_identity",
    "chunk_copies",
    "chunk_times",
    "chunks",
    "events",
    "file_locations",
    "findings",
    "folder_deltas",
    "folder_totals",
    "ingest_runs",
    "ingestion_units",
    "journal",
    "journal_files",
    "limit_shares",
    "limits",
    "listings",
    "metadata",
    "restored_locations",
    "retired_locations",
    "shards",
    "sources",
    "stores",
    "verifications",
    "verify_runs",
]

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "fk": "%(table_name)s_%(column_0_name)s_fkey",
        "uq": "%(table_name)s_%(column_0_name)s_key",
        "ix": "%(table_name)s_%(column_0_name)s_idx",
        "ck": "%(table_name)s_%(constraint_name)s_check",
    }
)

STORAGE: Final[dict[str, dict[str, str]]] = {
    "file_locations": {
        # A vacuum summarizes new pages in the BRIN index, and until then each search of a chunk reads all of them.
        # By default it comes after 20 % new rows: 200 million of 10^9. It reads only the new pages.
        "autovacuum_vacuum_insert_scale_factor": "0",
        "autovacuum_vacuum_insert_threshold": "1000000",
        # Removing dead rows reads the whole primary key, so their number has to grow with the table. 20 %, the
        # default, would be 23 GB of dead rows in 10^9 rows.
        "autovacuum_vacuum_scale_factor": "0.05",
        # Most rows never change. If the first vacuum freezes them, no later one has to read and write the whole
        # table again before transaction numbers wrap around.
        "autovacuum_freeze_min_age": "0",
    },
    "retired_locations": {
        # Rows are only added, except by `undelete`. Its indexes are B-trees, so a vacuum is needed only to freeze
        # rows and for index-only scans.
        "autovacuum_vacuum_insert_scale_factor": "0",
        "autovacuum_vacuum_insert_threshold": "5000000",
        "autovacuum_freeze_min_age": "0",
    },
    "folder_deltas": {
        # Rows are added to folder_totals and deleted: the table is small, or mostly dead.
        "autovacuum_vacuum_scale_factor": "0",
        "autovacuum_vacuum_threshold": "50000",
    },
    "journal_files": {
        # All rows of a record are deleted when its stores have the record: the table is small, or mostly dead.
        "autovacuum_vacuum_scale_factor": "0",
        "autovacuum_vacuum_threshold": "100000",
    },
}
"""Storage parameters of PostgreSQL, by table, with their reasons. Partitions have those of file_locations.

The fill factor stays at 100 %, also that of file_locations. A replaced file changes its row, but nearly all of 10^9
rows never change, and 10 % of free space would cost 12 GB. That of its primary key stays at PostgreSQL's 90 %: the
paths of a chunk are sorted, and fall between those of earlier chunks. Of `chunks`, rows change often,
but there are few.
"""


def _time(name: str, comment: str, *, default: bool = False) -> Column[object]:
    """Return a column for a point in time; with `default`, it defaults to the time of the inserting transaction."""
    return Column(
        name,
        DateTime(timezone=True),
        nullable=not default,
        server_default=text("now()") if default else None,
        comment=comment,
    )


def _store(comment: str) -> Column[object]:
    """Return a column that refers to a store by its URL (docs/decisions/0023)."""
    return Column("store", Text, ForeignKey("stores.url", onupdate="CASCADE"), nullable=False, comment=comment)


def _count(name: str, comment: str, kind: type[BigInteger] = BigInteger) -> Column[object]:
    return Column(name, kind, nullable=False, server_default=text("0"), comment=comment)


catalog_identity = Table(
    "catalog_identity",
    metadata,
    _time("created_at", "When the catalog was created.", default=True),
    Column(
        "uuid",
        Uuid,
        nullable=False,
        server_default=text("gen_random_uuid()"),
        comment="Identity of the catalog: the marker object of each store names the catalogs that write there.",
    ),
    Column(
        "only_row",
        Boolean,
        primary_key=True,
        server_default=text("true"),
        comment="Always true: the primary key allows one row only.",
    ),
    Column(
        "home",
        Text,
        comment="URL of CAFCAT_HOME at the last use, with the embedded database; else NULL.",
    ),
    CheckConstraint("only_row", name="only_row"),
    comment="Identity of this catalog: one row.",
)

stores = Table(
    "stores",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True, comment="Number of the store."),
    _time("added_at", "When the catalog first used the store.", default=True),
    Column("uuid", Uuid, unique=True, comment="Identity in the store's marker object; NULL while it has none."),
    Column(
        "url",
        Text,
        nullable=False,
        unique=True,
        comment="URL of the store: chunks.store, chunk_copies.store and backups.store refer to it.",
    ),
    Column("name", Text, unique=True, comment="Short name of the store; NULL if nobody has named it."),
    Column(
        "home_path",
        Text,
        comment="What follows the home in url, for a store inside the home; NULL for every other store.",
    ),
    Column(
        "checks",
        JSONB,
        comment="Which of the server's answers were found to be wrong or missing; NULL if not tried.",
    ),
    comment="Folders and buckets that hold chunks, copies, backups or adopted archives.",
)

sources = Table(
    "sources",
    metadata,
    Column("id", Integer, Identity(always=True), primary_key=True, comment="Number of the source."),
    _time("added_at", "When the catalog first met the source.", default=True),
    Column(
        "url",
        Text(collation="C"),
        nullable=False,
        unique=True,
        comment="Folder, bucket or server that the names of files are relative to.",
    ),
    comment="Roots that files were ingested from.",
)

ingest_runs = Table(
    "ingest_runs",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True, comment="Number of the run."),
    _time("started_at", "When the run began.", default=True),
    _time("finished_at", "When it ended; NULL while it runs, or if its process died."),
    _count("files_added", "Files committed under a path that the catalog did not have."),
    _count("files_replaced", "Files committed over an older location of the same path."),
    _count("files_unchanged", "Files left alone: same size and modification time as the catalog has."),
    _count("files_skipped", "Symlinks, sockets, devices, and conflicts under --on-conflict skip."),
    _count("files_failed", "Files refused by name or size, changed while read, vanished, or unreadable."),
    _count("bytes_added", "Bytes of the files added and replaced."),
    _count("chunks_committed", "Chunks that the run committed."),
    Column("process_id", Integer, nullable=False, comment="Process id of the writer on its host."),
    Column(
        "state",
        Text,
        nullable=False,
        server_default=text("'running'"),
        comment="running, finished, interrupted (by the user; what was packed is committed), failed, or rebuilt "
        "(from the journals of the stores, which do not have its end, its sources and its counts).",
    ),
    Column("host", Text, nullable=False, comment="Host name of the writer."),
    Column("cafcat_version", Text, nullable=False, comment="Version of the program."),
    Column("sources", ARRAY(Text), nullable=False, comment="What was ingested, as typed."),
    Column("options", JSONB, nullable=False, comment="Options of the run: prefix, include, exclude, ..."),
    Column("error", Text, comment="Why the run failed; NULL otherwise."),
    _time(
        "paused_at", "Since when the run is to be paused; NULL if it is not. Its processes look every 5 seconds."
    ),
    Column("owner", Text, comment="Process of the run, as in chunks.lease_owner: recover sees by it that it died."),
    Column(
        "request",
        Text,
        comment="What the workers of a run with shards are asked to do: stop after the commit of their open "
        "chunks, or abort at once; NULL: go on.",
    ),
    _count("files_removed", "Files that --delete removed from the catalog, because they were gone at the source."),
    CheckConstraint("state IN ('running', 'finished', 'interrupted', 'failed', 'rebuilt')", name="state"),
    CheckConstraint("request IN ('stop', 'abort')", name="request"),
    comment="Every ingest and adoption: what it was asked, what it brought, how it ended.",
)

chunks = Table(
    "chunks",
    metadata,
    Column(
        "id",
        BigInteger,
        Identity(always=True),
        primary_key=True,
        comment="Number of the chunk; file_locations.caf_file_id points here.",
    ),
    Column("run_id", BigInteger, ForeignKey("ingest_runs.id"), comment="The run that wrote or adopted the chunk."),
    Column("size_bytes", BigInteger, comment="Size of the whole object: data, index and footer."),
    Column("data_bytes", BigInteger, comment="Bytes of the files in it, live or not; in CAF all before the index."),
    Column("index_start_byte", BigInteger, comment="Where the object's own index begins."),
    Column("index_end_byte", BigInteger, comment="One past the end of the object's own index."),
    _count("file_count", "Files in the object's own index."),
    _count("live_file_count", "Rows of file_locations that point here."),
    _count("live_bytes", "Bytes of the files that file_locations points to here."),
    _time("begun_at", "When the row was made, before the first byte was written.", default=True),
    _time("committed_at", "When the object was durable and all its mappings were committed."),
    _time("abandoned_at", "When the writer, or recover, gave the chunk up."),
    _time("retired_at", "When the last live file left the chunk; NULL again if one is undeleted."),
    _time("deleted_at", "When the store had nothing of it any more, neither object nor upload."),
    _time("lease_expires_at", "While writing: the writer is taken for dead after this time."),
    Column("uuid", Uuid, nullable=False, unique=True, comment="Name of the chunk everywhere outside SQL."),
    Column(
        "state",
        Text,
        nullable=False,
        server_default=text("'writing'"),
        comment="writing -> committed or abandoned; committed <-> retired -> deleted.",
    ),
    Column("format", Text, nullable=False, comment="Format of the archive: caf, car, chunkio, ..."),
    _store("URL of the store that holds the object."),
    Column("object_key", Text, nullable=False, comment="Key of the object in its store."),
    Column("lease_owner", Text, comment="While writing: host, process id and run of the writer."),
    Column("crc64nvme", Text, comment="CRC-64/NVME of the whole object in base64, as S3 shows it."),
    Column("etag", Text, comment="Entity tag that the store gave the object; NULL for folders."),
    Column(
        "upload_id",
        Text,
        comment="Multipart upload that writes the object: what recover aborts; NULL for folders.",
    ),
    Column(
        "index_crc32c",
        BigInteger,
        comment="CRC-32C of the object from index_start_byte to its end; NULL if nobody noted it.",
    ),
    Column(
        "moves_from",
        ARRAY(BigInteger),
        comment="chunks.id of those whose files were copied into it, by repack or repair; NULL for an ingest.",
    ),
    Column(
        "adopted_prefix",
        Text,
        comment="Of an archive that was adopted in place: what its paths begin with before the names that it has "
        "for them itself. NULL for cafcat's own. An adopted object is never written to or deleted.",
    ),
    CheckConstraint("state IN ('writing', 'committed', 'abandoned', 'retired', 'deleted')", name="state"),
    CheckConstraint(
        "state IN ('writing', 'abandoned') OR (size_bytes IS NOT NULL AND data_bytes IS NOT NULL "
        "AND index_start_byte IS NOT NULL AND index_end_byte IS NOT NULL AND committed_at IS NOT NULL)",
        name="whole",
    ),
    CheckConstraint("live_file_count >= 0 AND live_bytes >= 0", name="live"),
    Index(
        "chunks_object_idx",
        "store",
        "object_key",
        unique=True,
        postgresql_where=text("adopted_prefix IS NULL OR state <> 'deleted'"),
    ),
    Index(None, "run_id"),
    Index("chunks_open_idx", "lease_expires_at", postgresql_where=text("state = 'writing'")),
    Index(
        "chunks_left_idx",
        "id",
        postgresql_where=text("state IN ('abandoned', 'deleted') AND deleted_at IS NULL"),
    ),
    Index("chunks_retired_idx", "retired_at", postgresql_where=text("state = 'retired'")),
    comment="One row per archive object (chunk), through its whole life.",
)


def _location_columns() -> list[Column[object]]:
    """Return the first columns of a location, which file_locations and retired_locations share."""
    return [
        Column(
            "caf_file_id",
            BigInteger,
            nullable=False,
            comment="The chunk: chunks.id. See docs/decisions/0003.",
        ),
        Column("start_byte", BigInteger, nullable=False, comment="First byte of the file in the chunk."),
        Column(
            "end_byte",
            BigInteger,
            nullable=False,
            comment="One past its last byte: size is end_byte - start_byte, unless there is content_bytes.",
        ),
        Column("crc32c", BigInteger, nullable=False, comment="CRC-32C (Castagnoli) of the file, unsigned."),
        Column(
            "modified_at",
            DateTime(timezone=True),
            comment="Modification time at the source, cut to microseconds; NULL where the source has none.",
        ),
    ]


def _further_columns() -> list[Column[object]]:
    """Return the last columns of a location, which may be NULL and which both tables of locations share."""
    return [
        Column(
            "source_etag",
            Text,
            comment="Entity tag of the file at its source, without quotes; NULL where the source has none.",
        ),
        Column(
            "content_bytes",
            BigInteger,
            comment="Size of the file where it has to be decoded; NULL where the bytes in the chunk are the file.",
        ),
        Column(
            "decoding",
            Text,
            comment="How the chunk's format makes the file of the bytes, in its own words; NULL where they are it.",
        ),
        Column(
            "source_id",
            Integer,
            comment="Source that the file was read from: sources.id. NULL if unknown; then size and time decide "
            "whether it changed.",
        ),
        Column(
            "ingest_run_id",
            BigInteger,
            comment="Run that brought the file, if that is not chunks.run_id of its chunk: repack and repair move "
            "files to chunks without a run. The view files in cafcat_ops has the run of every file.",
        ),
        Column(
            "current_since",
            DateTime(timezone=True),
            comment="Since when the path has this content, if that is not chunks.committed_at of its chunk: the "
            "file was moved or undeleted since then.",
        ),
    ]


file_locations = Table(
    "file_locations",
    metadata,
    *_location_columns(),
    Column(
        "file_path",
        Text(collation="C"),
        primary_key=True,
        comment="Name of the file: valid UTF-8, no NUL, 1 to 2048 bytes, sorted bytewise.",
    ),
    *_further_columns(),
    CheckConstraint("start_byte >= 0 AND end_byte >= start_byte", name="span"),
    CheckConstraint("crc32c >= 0 AND crc32c <= 4294967295", name="crc32c"),
    CheckConstraint("octet_length(file_path) >= 1 AND octet_length(file_path) <= 2048", name="file_path"),
    # Rows of later chunks fill pages of removed rows. Several intervals for each range of pages leave out the
    # chunks in between.
    Index(
        None,
        "caf_file_id",
        postgresql_using="brin",
        postgresql_ops={"caf_file_id": "int8_minmax_multi_ops"},
        postgresql_with={"autosummarize": True},
    ),
    Index(None, "ingest_run_id", postgresql_where=text("ingest_run_id IS NOT NULL")),
    Index(None, "current_since", postgresql_where=text("current_since IS NOT NULL")),
    comment="Where each file is now: bytes [start_byte, end_byte) of a committed chunk.",
)

retired_locations = Table(
    "retired_locations",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True, comment="Order of retirement."),
    *_location_columns(),
    Column("run_id", BigInteger, ForeignKey("ingest_runs.id"), comment="The run that retired it."),
    _time("retired_at", "When it was retired.", default=True),
    Column("file_path", Text(collation="C"), nullable=False, comment="Name that pointed there."),
    Column(
        "reason",
        Text,
        nullable=False,
        comment="replaced (a newer version was committed), skipped (packed, but another version stayed), "
        "removed (by rm) or moved (into another chunk, by repack or repair).",
    ),
    *_further_columns(),
    CheckConstraint("reason IN ('replaced', 'skipped', 'removed', 'moved')", name="reason"),
    Index(None, "file_path"),
    Index(None, "caf_file_id"),
    Index(None, "retired_at", postgresql_using="brin"),
    comment="What paths pointed to before: every entry of a chunk is either here or in file_locations.",
)

events = Table(
    "events",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True, comment="Order of the events."),
    Column("run_id", BigInteger, ForeignKey("ingest_runs.id"), comment="The run it belongs to."),
    Column("chunk_id", BigInteger, ForeignKey("chunks.id"), comment="The chunk it is about."),
    _time("happened_at", "When it was recorded; of chunk_rebuilt, since when the files are current.", default=True),
    Column("kind", Text, nullable=False, comment="chunk_begun, chunk_committed, chunk_abandoned, file_failed, ..."),
    Column("file_path", Text, comment="The file it is about, with undecodable bytes escaped."),
    Column("detail", Text, comment="What happened, in one line."),
    Column("actor", Text, comment="Who did it: user and host of the process; NULL in events of earlier versions."),
    Column("options", JSONB, comment="Options of the command, of events of the kind command."),
    Column(
        "files_change", BigInteger, comment="By how much the event changed the number of live files; NULL if not."
    ),
    Column("bytes_change", BigInteger, comment="By how much the event changed the total size of all live files."),
    Index(None, "run_id"),
    Index(None, "chunk_id"),
    Index("events_growth_idx", "happened_at", postgresql_where=text("files_change IS NOT NULL")),
    Index("events_commands_idx", "id", postgresql_where=text("kind = 'command'")),
    comment="Append-only log of what happened to runs, chunks and single files, and of who did what.",
)


def _total_columns() -> list[Column[object]]:
    """Return the columns that the totals of folders share with the changes that are not added to them yet."""
    return [
        Column("files", BigInteger, nullable=False, comment="Number of live files in the folder and all below it."),
        Column("bytes", BigInteger, nullable=False, comment="Total size of these files in bytes."),
        Column(
            "depth", Integer, nullable=False, comment="Number of slashes in folder_path; 0 for the whole catalog."
        ),
        Column(
            "folder_path",
            Text(collation="C"),
            nullable=False,
            comment="The folder, with a slash at its end; empty for the whole catalog.",
        ),
    ]


restored_locations = Table(
    "restored_locations",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True, comment="Order of restoration."),
    *_location_columns(),
    _time("removed_at", "When the file was removed."),
    _time("restored_at", "When undelete brought the file back.", default=True),
    Column("removed_by_run_id", BigInteger, comment="Run that removed it with --delete; NULL for rm."),
    Column("file_path", Text(collation="C"), nullable=False, comment="Path of the file."),
    *_further_columns(),
    Index(None, "file_path"),
    Index(None, "removed_at"),
    comment="A removal that undelete took back: since when, and until when, the file was current before.",
)

folder_totals = Table(
    "folder_totals",
    metadata,
    *_total_columns(),
    PrimaryKeyConstraint("depth", "folder_path"),
    Index("folder_totals_empty_idx", "depth", postgresql_where=text("files = 0")),
    comment="Files and bytes in each folder. Changes in folder_deltas are not added yet: see the view folders.",
)

folder_deltas = Table(
    "folder_deltas",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True, comment="Order of the changes."),
    *_total_columns(),
    Index(None, "depth", "folder_path"),
    comment="Changes of folder_totals: each commit adds rows, so that no two commits wait for one row.",
)

listings = Table(
    "listings",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True, comment="Number of the listing."),
    Column("run_id", BigInteger, ForeignKey("ingest_runs.id"), comment="The run that went on with it last."),
    _time("started_at", "When the listing began.", default=True),
    _time("advanced_at", "When its position was last written; NULL if never."),
    _time("finished_at", "When it came to its end; NULL while it can go on."),
    Column("source", Text, nullable=False, comment="URL of what is listed."),
    Column(
        "scope",
        Text,
        nullable=False,
        comment="What else the listing depends on: server, prefix, patterns, what happens to conflicts.",
    ),
    Column(
        "position",
        Text,
        comment="Every object up to this key was dealt with: committed, unchanged, or refused.",
    ),
    Index("listings_open_key", "source", "scope", unique=True, postgresql_where=text("finished_at IS NULL")),
    Index(None, "run_id"),
    comment="Listings of remote sources: where an interrupted one goes on.",
)

shards = Table(
    "shards",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True, comment="Number of the shard."),
    Column(
        "run_id",
        BigInteger,
        ForeignKey("ingest_runs.id"),
        nullable=False,
        comment="The run that works on it, or was the last one to do so.",
    ),
    _time("planned_at", "When the source was cut into shards.", default=True),
    _time("begun_at", "When a worker first took it; NULL if none has."),
    _time("finished_at", "When all its files were dealt with; NULL before."),
    _time("lease_expires_at", "While running: the worker is taken for dead after this time."),
    Column("source_number", Integer, nullable=False, comment="Place of the source in the command, from 0."),
    Column(
        "attempts", Integer, nullable=False, server_default=text("0"), comment="How many times a worker took it."
    ),
    Column(
        "state",
        Text,
        nullable=False,
        server_default=text("'waiting'"),
        comment="waiting -> running -> finished; running -> waiting if its worker failed; cancelled if the source "
        "was cut anew.",
    ),
    Column("source", Text, nullable=False, comment="The source: a URL, or an absolute path."),
    Column(
        "scope", Text, nullable=False, comment="What else the shard depends on: prefix, patterns, inventory, ..."
    ),
    Column(
        "after_position",
        Text(collation="C"),
        comment="The shard begins after this position (key, path, offset); NULL for the beginning of the source.",
    ),
    Column(
        "through_position",
        Text(collation="C"),
        comment="The shard ends with this position; NULL for the end of the source.",
    ),
    Column(
        "position",
        Text(collation="C"),
        comment="Every file up to this position was dealt with: committed, unchanged, or refused.",
    ),
    Column("owner", Text, comment="The worker, as in chunks.lease_owner; NULL while nobody has it."),
    Column("host", Text, comment="Host name of the worker that had it last."),
    Column("error", Text, comment="Why the last attempt failed; NULL otherwise."),
    Column(
        "report",
        JSONB,
        nullable=False,
        server_default=text("'{}'"),
        comment="Counts up to the position: files seen, unchanged, skipped, failed; files and bytes handled.",
    ),
    Column("progress", JSONB, comment="While running: files and bytes handled after the position."),
    CheckConstraint("state IN ('waiting', 'running', 'finished', 'cancelled')", name="state"),
    Index(None, "run_id"),
    Index("shards_open_idx", "run_id", "id", postgresql_where=text("state IN ('waiting', 'running')")),
    comment="Parts of the sources of ingests by many workers: which part is done, and who works on it.",
)

journal = Table(
    "journal",
    metadata,
    Column(
        "id",
        BigInteger,
        Identity(always=True),
        primary_key=True,
        comment="Order of the changes: of two that concern the same path, the later one has the higher number.",
    ),
    Column(
        "chunk_id", BigInteger, ForeignKey("chunks.id"), comment="The chunk that was committed, if it was that."
    ),
    _time("happened_at", "When it was committed.", default=True),
    Column("uuid", Uuid, nullable=False, unique=True, comment="Part of the object key, so that it is never taken."),
    Column(
        "kind",
        Text,
        nullable=False,
        comment="commit (of a chunk), move (the same, by repack or repair), remove (rm) or restore (undelete).",
    ),
    Column(
        "unwritten",
        ARRAY(Text),
        nullable=False,
        comment="URLs of the stores that do not have it yet: recover writes it there.",
    ),
    CheckConstraint("kind IN ('commit', 'move', 'remove', 'restore')", name="kind"),
    Index(None, "chunk_id"),
    Index("journal_unwritten_idx", "id", postgresql_where=text("unwritten <> '{}'")),
    comment="Every change of file_locations, in order. Stores keep it beside the chunks, for a rebuild.",
)

journal_files = Table(
    "journal_files",
    metadata,
    Column("journal_id", BigInteger, ForeignKey("journal.id"), primary_key=True, comment="The change: journal.id."),
    Column("caf_file_id", BigInteger, nullable=False, comment="The chunk: chunks.id."),
    Column("start_byte", BigInteger, nullable=False, comment="First byte of the file in the chunk."),
    Column("file_path", Text(collation="C"), primary_key=True, comment="Name of the file."),
    comment="Files that a change is about, until it is in every store. Of a commit: those that were skipped.",
)


def _object_columns(noun: str) -> list[Column[object] | CheckConstraint]:
    """Return the columns and the check that copies and backups share; `noun` names the object in comments."""
    return [
        _time("begun_at", "When the row was made, before the first byte was written.", default=True),
        _time("committed_at", f"When the {noun} was durable and whole."),
        _time("abandoned_at", f"When the writer, or recover, gave the {noun} up."),
        _time("deleted_at", "When the store had nothing of it any more, neither object nor upload."),
        _time("lease_expires_at", "While writing: the writer is taken for dead after this time."),
        Column(
            "state",
            Text,
            nullable=False,
            server_default=text("'writing'"),
            comment="writing -> committed or abandoned; committed -> deleted.",
        ),
        _store("URL of the store that holds the object."),
        Column("object_key", Text, nullable=False, comment="Key of the object in that store."),
        Column("lease_owner", Text, comment="While writing: host and process of the writer."),
        Column("etag", Text, comment="Entity tag that the store gave the object; NULL for folders."),
        Column("upload_id", Text, comment="Multipart upload that writes the object; NULL for folders."),
        CheckConstraint("state IN ('writing', 'committed', 'abandoned', 'deleted')", name="state"),
    ]


chunk_copies = Table(
    "chunk_copies",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True, comment="Number of the copy."),
    Column(
        "chunk_id", BigInteger, ForeignKey("chunks.id"), nullable=False, comment="The chunk that it is a copy of."
    ),
    *_object_columns("copy"),
    _time(
        "retired_at",
        "When a migration of the store replaced this copy as the place to read from; prune removes the copy later.",
    ),
    Index(
        "chunk_copies_object_key",
        "store",
        "object_key",
        unique=True,
        postgresql_where=text("deleted_at IS NULL"),
    ),
    Index(None, "chunk_id"),
    comment="Further objects with the very bytes of a chunk: reads go there when the first one fails.",
)

backups = Table(
    "backups",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True, comment="Number of the backup."),
    Column("journal_id", BigInteger, comment="The last change (journal.id) that is in it."),
    Column("size_bytes", BigInteger, comment="Size of the object."),
    *_object_columns("backup"),
    UniqueConstraint("store", "object_key"),
    comment="Backups of the catalog, as objects in a store.",
)

verify_runs = Table(
    "verify_runs",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True, comment="Number of the run."),
    _time("started_at", "When it began.", default=True),
    _time("finished_at", "When it had checked all it was to check; NULL while it can go on."),
    Column("process_id", Integer, nullable=False, comment="Process id on its host, of the one that went on last."),
    Column("level", Text, nullable=False, comment="catalog, index, data or source."),
    Column("host", Text, nullable=False, comment="Host name, of the one that went on last."),
    Column(
        "scope",
        JSONB,
        nullable=False,
        comment="What it was to check: chunks, prefix, older_than, sample, ...; a run of the same scope goes on.",
    ),
    CheckConstraint("level IN ('catalog', 'index', 'data', 'source')", name="level"),
    Index("verify_runs_open_idx", "id", postgresql_where=text("finished_at IS NULL")),
    comment="Every verify: what it was asked.",
)

verifications = Table(
    "verifications",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True, comment="Number of the check."),
    Column("run_id", BigInteger, ForeignKey("verify_runs.id"), nullable=False, comment="The verify that made it."),
    Column("chunk_id", BigInteger, ForeignKey("chunks.id"), comment="The chunk; NULL for the catalog as a whole."),
    Column("copy_id", BigInteger, ForeignKey("chunk_copies.id"), comment="Which copy; NULL for the chunk itself."),
    _count("files_checked", "Files whose bytes, or rows, were looked at."),
    _count("bytes_read", "Bytes read from the store or the source."),
    _count("finding_count", "Rows in findings."),
    _time("started_at", "When it began.", default=True),
    _time("finished_at", "When it was done.", default=True),
    Column("level", Text, nullable=False, comment="catalog, index, data or source: each looks at more."),
    Column(
        "verdict",
        Text,
        nullable=False,
        comment="ok, damaged (see findings), missing (no object) or unreadable (the store did not give it).",
    ),
    Column("checked_by", Text, nullable=False, comment="Host and process that checked."),
    CheckConstraint("level IN ('catalog', 'index', 'data', 'source')", name="level"),
    CheckConstraint("verdict IN ('ok', 'damaged', 'missing', 'unreadable')", name="verdict"),
    Index(None, "chunk_id", "id"),
    Index(None, "run_id"),
    comment="History of checks: which chunk was checked when, at which level, with what verdict.",
)

findings = Table(
    "findings",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True, comment="Number of the finding."),
    Column(
        "verification_id",
        BigInteger,
        ForeignKey("verifications.id"),
        nullable=False,
        comment="The check that found it.",
    ),
    Column("start_byte", BigInteger, comment="First byte of what is wrong, in the chunk, if it is about bytes."),
    Column("end_byte", BigInteger, comment="One past its last byte."),
    Column(
        "kind",
        Text,
        nullable=False,
        comment="file (its bytes), index, gap (bytes of no file), size, missing, mapping (index and rows differ), "
        "catalog (rows contradict each other), source (differs at its source), absent (gone at its source), "
        "unpacked (only at its source), unreadable (not given).",
    ),
    Column("file_path", Text(collation="C"), comment="The file it is about."),
    Column("detail", Text, nullable=False, comment="What is wrong, in one line."),
    Column(
        "file_count",
        BigInteger,
        nullable=False,
        server_default=text("0"),
        comment="Number of files that the finding concerns, file_path being the first; 0 if the finding concerns "
        "no file.",
    ),
    Column(
        "is_live",
        Boolean,
        nullable=False,
        server_default=text("true"),
        comment="True if a live file needs the damaged bytes; false if only replaced or removed files do, or none. "
        "True for all findings at a source.",
    ),
    Index(None, "verification_id"),
    comment="What checks found to be wrong.",
)

ingestion_units = Table(
    "ingestion_units",
    metadata,
    Column("chunk_id", BigInteger, ForeignKey("chunks.id"), primary_key=True, comment="The archive: chunks.id."),
    Column("first_record", BigInteger, nullable=False, comment="First record of the log file in the archive."),
    Column("end_record", BigInteger, nullable=False, comment="One past its last record."),
    Column("source_bytes", BigInteger, comment="Size of the log file when it was ingested; NULL if unknown."),
    _time("modified_at", "Modification time of the log file when it was ingested; NULL if unknown."),
    Column(
        "number",
        Integer,
        primary_key=True,
        autoincrement=False,
        comment="Place in the archive's own list, from 0.",
    ),
    Column(
        "file_name",
        Text(collation="C"),
        nullable=False,
        comment="The log file, by the name that the archive has for it; empty if it has none.",
    ),
    Column("fields", JSONB, nullable=False, comment="What else the archive says of the log file."),
    CheckConstraint("first_record >= 0 AND end_record >= first_record", name="span"),
    CheckConstraint("octet_length(file_name) <= 2048", name="file_name"),
    Index(None, "file_name", "chunk_id", "number"),
    comment="Log files in archives of logs (clp-s): which records of which archive are those of which file.",
)

chunk_times = Table(
    "chunk_times",
    metadata,
    Column("chunk_id", BigInteger, ForeignKey("chunks.id"), primary_key=True, comment="The archive: chunks.id."),
    Column("begin_ms", Numeric, comment="Earliest time, milliseconds since 1970 UTC; NULL if unknown."),
    Column("end_ms", Numeric, comment="Latest time, inclusive."),
    Column("timestamp_key", Text(collation="C"), primary_key=True, comment="Key of the records that has the time."),
    comment="Which times the records of an archive of logs (clp-s) span: what a search by time looks at first.",
)

access_keys = Table(
    "access_keys",
    metadata,
    _time("created_at", "When the key was made.", default=True),
    _time("expires_at", "From when on the key is refused; NULL if it does not expire."),
    _time("revoked_at", "When the key was revoked; NULL if it was not."),
    Column(
        "access_key_id",
        Text(collation="C"),
        primary_key=True,
        comment="Name of the key, which every request of its user has.",
    ),
    Column(
        "prefix",
        Text(collation="C"),
        nullable=False,
        comment="Folder of the catalog that the key can read, with a slash at its end; empty for all files.",
    ),
    Column(
        "sealed_secret",
        LargeBinary,
        comment="The secret, encrypted with the sealing key, which the database does not have; NULL once revoked.",
    ),
    CheckConstraint("(sealed_secret IS NULL) = (revoked_at IS NOT NULL)", name="sealed_secret"),
    comment="Keys with which programs read files through the S3 server.",
)

limits = Table(
    "limits",
    metadata,
    _time("set_at", "When the limit was set.", default=True),
    Column("in_flight_bytes", BigInteger, comment="Most bytes of requests at the same time; NULL for no limit."),
    Column("bytes_per_second", BigInteger, comment="Most bytes per second; NULL for no limit."),
    Column("requests", Integer, comment="Most requests at the same time; NULL for no limit."),
    Column(
        "url",
        Text(collation="C"),
        primary_key=True,
        comment="URL of a store or source, or of a folder of one. The limit is for all objects at or below it.",
    ),
    CheckConstraint("requests > 0 AND in_flight_bytes > 0 AND bytes_per_second > 0", name="positive"),
    comment="Limits of requests and bytes, for all processes together.",
)

limit_shares = Table(
    "limit_shares",
    metadata,
    Column(
        "expires_at",
        DateTime(timezone=True),
        nullable=False,
        comment="When the share ends, unless its process renews it before.",
    ),
    Column("in_flight_bytes", BigInteger, comment="Share of limits.in_flight_bytes; NULL for no limit."),
    Column("bytes_per_second", BigInteger, comment="Share of limits.bytes_per_second; NULL for no limit."),
    Column("requests", Integer, comment="Share of limits.requests; NULL for no limit."),
    Column(
        "url",
        Text(collation="C"),
        ForeignKey("limits.url", ondelete="CASCADE"),
        primary_key=True,
        comment="The limit.",
    ),
    Column("worker", Text(collation="C"), primary_key=True, comment="Process that has the share."),
    comment="Shares of limits that processes use. The shares of a limit never exceed it.",
)
