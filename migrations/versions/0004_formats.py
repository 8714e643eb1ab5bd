"""Add columns and tables for five formats: decoded files, adopted archives, log files in archives of logs.

Revision: 0004, after 0003. New columns are NULL in all rows, so PostgreSQL rewrites no table.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

LOCATIONS = ("file_locations", "retired_locations")
CONTENT_BYTES = "Size of the file where it has to be decoded; NULL where the bytes in the chunk are the file."
DECODING = "How the chunk's format makes the file of the bytes, in its own words; NULL where they are it."
BEFORE = "One past its last byte: the size is end_byte - start_byte."
END_BYTE = "One past its last byte: size is end_byte - start_byte, unless there is content_bytes."
COMMENTS = (
    (
        "data_bytes",
        sa.BigInteger(),
        True,
        "Size of the data section, dead bytes included.",
        "Bytes of the files in it, live or not; in CAF all before the index.",
    ),
    ("format", sa.Text(), False, "Format of the archive: caf.", "Format of the archive: caf, car, chunkio, ..."),
)
"""Changed comments of columns of chunks: name, type, whether it is nullable, old comment, new comment."""
ADOPTED_PREFIX = (
    "Of an archive that was adopted in place: what its paths begin with before the names that it has for them itself. "
    "NULL for cafcat's own. An adopted object is never written to or deleted."
)
# The view omits times outside of the years 1 to 9999, because clients cannot show them.
TIME = "CASE WHEN {0} BETWEEN -62135596800000 AND 253402300799999 THEN to_timestamp({0} / 1000) END"
UNITS = f"""
CREATE VIEW units AS
SELECT u.file_name AS log_file, u.end_record - u.first_record AS records, u.first_record, u.end_record,
       c.uuid AS chunk, c.state, c.store, c.object_key, t.begin_at, t.end_at, u.source_bytes, u.modified_at
FROM ingestion_units AS u JOIN chunks AS c ON c.id = u.chunk_id
LEFT JOIN (SELECT chunk_id, min({TIME.format("begin_ms")}) AS begin_at, max({TIME.format("end_ms")}) AS end_at
           FROM chunk_times GROUP BY chunk_id) AS t ON t.chunk_id = u.chunk_id
WHERE c.state <> 'deleted'
"""  # noqa: S608
UNITS_COMMENTS = {
    "log_file": "The log file, by the name that the archive has for it.",
    "records": "How many of its records the archive has.",
    "first_record": "First record of the log file in the archive, from 0.",
    "end_record": "One past its last record.",
    "chunk": "Name of the archive: chunks.uuid.",
    "state": "State of the archive: chunks.state.",
    "store": "URL of the store that holds the archive.",
    "object_key": "Key of the archive in its store.",
    "begin_at": "Earliest time of any record of the archive.",
    "end_at": "Latest time of any record of the archive.",
    "source_bytes": "Size of the log file when it was ingested; NULL if unknown.",
    "modified_at": "Modification time of the log file when it was ingested; NULL if unknown.",
}
THERE_ONCE = sa.text("adopted_prefix IS NULL OR state <> 'deleted'")


def upgrade() -> None:
    """Add the columns, tables and the view."""
    for table in LOCATIONS:
        op.add_column(table, sa.Column("content_bytes", sa.BigInteger(), nullable=True, comment=CONTENT_BYTES))
        op.add_column(table, sa.Column("decoding", sa.Text(), nullable=True, comment=DECODING))
        _comment(table, sa.Column("end_byte", sa.BigInteger(), nullable=False, comment=BEFORE), END_BYTE)
    op.add_column("chunks", sa.Column("adopted_prefix", sa.Text(), nullable=True, comment=ADOPTED_PREFIX))
    # An adopted archive whose row is `deleted` may be adopted again.
    op.drop_constraint("chunks_store_key", "chunks")
    key = ["store", "object_key"]
    op.create_index("chunks_object_idx", "chunks", key, unique=True, postgresql_where=THERE_ONCE)
    for name, kind, nullable, before, after in COMMENTS:
        _comment("chunks", sa.Column(name, kind, nullable=nullable, comment=before), after)
    _create_units()


def downgrade() -> None:
    """Drop the columns, tables and the view, for development. Files that have to be decoded become unreadable."""
    for name, kind, nullable, before, after in COMMENTS:
        _comment("chunks", sa.Column(name, kind, nullable=nullable, comment=after), before)
    op.execute("DROP VIEW units")
    op.drop_table("chunk_times")
    op.drop_table("ingestion_units")
    op.drop_index("chunks_object_idx", "chunks")
    op.create_unique_constraint("chunks_store_key", "chunks", ["store", "object_key"])
    op.drop_column("chunks", "adopted_prefix")
    for table in LOCATIONS:
        _comment(table, sa.Column("end_byte", sa.BigInteger(), nullable=False, comment=END_BYTE), BEFORE)
        op.drop_column(table, "decoding")
        op.drop_column(table, "content_bytes")


def _create_units() -> None:
    op.create_table(
        "ingestion_units",
        _chunk_id(),
        sa.Column(
            "first_record",
            sa.BigInteger(),
            nullable=False,
            comment="First record of the log file in the archive.",
        ),
        sa.Column("end_record", sa.BigInteger(), nullable=False, comment="One past its last record."),
        sa.Column(
            "source_bytes", sa.BigInteger(), comment="Size of the log file when it was ingested; NULL if unknown."
        ),
        sa.Column(
            "modified_at",
            sa.DateTime(timezone=True),
            comment="Modification time of the log file when it was ingested; NULL if unknown.",
        ),
        sa.Column(
            "number",
            sa.Integer(),
            nullable=False,
            autoincrement=False,
            comment="Place in the archive's own list, from 0.",
        ),
        sa.Column(
            "file_name",
            sa.Text(collation="C"),
            nullable=False,
            comment="The log file, by the name that the archive has for it; empty if it has none.",
        ),
        sa.Column("fields", JSONB(), nullable=False, comment="What else the archive says of the log file."),
        sa.CheckConstraint("first_record >= 0 AND end_record >= first_record", name="span"),
        sa.CheckConstraint("octet_length(file_name) <= 2048", name="file_name"),
        sa.ForeignKeyConstraint(["chunk_id"], ["chunks.id"], name="ingestion_units_chunk_id_fkey"),
        sa.PrimaryKeyConstraint("chunk_id", "number", name="ingestion_units_pkey"),
        comment="Log files in archives of logs (clp-s): which records of which archive are those of which file.",
    )
    op.create_index("ingestion_units_file_name_idx", "ingestion_units", ["file_name", "chunk_id", "number"])
    op.create_table(
        "chunk_times",
        _chunk_id(),
        sa.Column("begin_ms", sa.Numeric(), comment="Earliest time, milliseconds since 1970 UTC; NULL if unknown."),
        sa.Column("end_ms", sa.Numeric(), comment="Latest time, inclusive."),
        sa.Column(
            "timestamp_key",
            sa.Text(collation="C"),
            nullable=False,
            comment="Key of the records that has the time.",
        ),
        sa.ForeignKeyConstraint(["chunk_id"], ["chunks.id"], name="chunk_times_chunk_id_fkey"),
        sa.PrimaryKeyConstraint("chunk_id", "timestamp_key", name="chunk_times_pkey"),
        comment="Which times the records of an archive of logs (clp-s) span: what a search by time looks at first.",
    )
    op.execute(UNITS)
    op.execute("COMMENT ON VIEW units IS 'Log files in archives of logs, and where these archives are.'")
    for column, comment in UNITS_COMMENTS.items():
        op.execute(f"COMMENT ON COLUMN units.{column} IS '{comment}'")


def _chunk_id() -> "sa.Column[int]":
    return sa.Column("chunk_id", sa.BigInteger(), nullable=False, comment="The archive: chunks.id.")


def _comment(table: str, column: "sa.Column[object]", comment: str) -> None:
    op.alter_column(
        table,
        column.name,
        existing_type=column.type,
        comment=comment,
        existing_comment=column.comment,
        existing_nullable=bool(column.nullable),
    )
