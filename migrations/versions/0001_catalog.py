"""Create the catalog: chunks, file_locations, retired_locations, ingest_runs, events.

Revision: 0001, the first.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


# A foreign key from file_locations to chunks would cost 60 % of the loading rate (docs/decisions/0003). Instead, a
# trigger prevents that rows of chunks are deleted.
KEEP_CHUNKS = """
CREATE FUNCTION chunks_are_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of chunks are never deleted: file_locations.caf_file_id points to them';
END $$;
COMMENT ON FUNCTION chunks_are_kept() IS 'Refuses DELETE and TRUNCATE on chunks.';
CREATE TRIGGER chunks_are_kept BEFORE DELETE OR TRUNCATE ON chunks
    FOR EACH STATEMENT EXECUTE FUNCTION chunks_are_kept();
"""


def upgrade() -> None:
    """Create all tables."""
    op.create_table(
        "file_locations",
        sa.Column(
            "caf_file_id",
            sa.BigInteger(),
            nullable=False,
            comment="The chunk: chunks.id. See docs/decisions/0003.",
        ),
        sa.Column("start_byte", sa.BigInteger(), nullable=False, comment="First byte of the file in the chunk."),
        sa.Column(
            "end_byte",
            sa.BigInteger(),
            nullable=False,
            comment="One past its last byte: the size is end_byte - start_byte.",
        ),
        sa.Column("crc32c", sa.BigInteger(), nullable=False, comment="CRC-32C (Castagnoli) of the file, unsigned."),
        sa.Column(
            "modified_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="Modification time at the source, cut to microseconds; NULL where the source has none.",
        ),
        sa.Column(
            "file_path",
            sa.Text(collation="C"),
            nullable=False,
            comment="Name of the file: valid UTF-8, no NUL, 1 to 2048 bytes, sorted bytewise.",
        ),
        sa.CheckConstraint("crc32c >= 0 AND crc32c <= 4294967295", name=op.f("file_locations_crc32c_check")),
        sa.CheckConstraint(
            "octet_length(file_path) >= 1 AND octet_length(file_path) <= 2048",
            name=op.f("file_locations_file_path_check"),
        ),
        sa.CheckConstraint("start_byte >= 0 AND end_byte >= start_byte", name=op.f("file_locations_span_check")),
        sa.PrimaryKeyConstraint("file_path", name=op.f("file_locations_pkey")),
        comment="Where each file is now: bytes [start_byte, end_byte) of a committed chunk.",
    )
    op.create_index(
        op.f("file_locations_caf_file_id_idx"),
        "file_locations",
        ["caf_file_id"],
        unique=False,
        postgresql_using="brin",
    )
    op.create_table(
        "ingest_runs",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False, comment="Number of the run."),
        sa.Column(
            "started_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When the run began.",
        ),
        sa.Column(
            "finished_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When it ended; NULL while it runs, or if its process died.",
        ),
        sa.Column(
            "files_added",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Files committed under a path that the catalog did not have.",
        ),
        sa.Column(
            "files_replaced",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Files committed over an older location of the same path.",
        ),
        sa.Column(
            "files_unchanged",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Files left alone: same size and modification time as the catalog has.",
        ),
        sa.Column(
            "files_skipped",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Symlinks, sockets, devices, and conflicts under --on-conflict skip.",
        ),
        sa.Column(
            "files_failed",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Files refused by name or size, changed while read, vanished, or unreadable.",
        ),
        sa.Column(
            "bytes_added",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Bytes of the files added and replaced.",
        ),
        sa.Column(
            "chunks_committed",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Chunks that the run committed.",
        ),
        sa.Column("process_id", sa.Integer(), nullable=False, comment="Process id of the writer on its host."),
        sa.Column(
            "state",
            sa.Text(),
            server_default=sa.text("'running'"),
            nullable=False,
            comment="running, finished, interrupted (by the user; what was packed is committed) or failed.",
        ),
        sa.Column("host", sa.Text(), nullable=False, comment="Host name of the writer."),
        sa.Column("cafcat_version", sa.Text(), nullable=False, comment="Version of the program."),
        sa.Column("sources", postgresql.ARRAY(sa.Text()), nullable=False, comment="What was ingested, as typed."),
        sa.Column(
            "options",
            postgresql.JSONB(astext_type=sa.Text()),
            nullable=False,
            comment="Options of the run: prefix, include, exclude, ...",
        ),
        sa.Column("error", sa.Text(), nullable=True, comment="Why the run failed; NULL otherwise."),
        sa.CheckConstraint(
            "state IN ('running', 'finished', 'interrupted', 'failed')", name=op.f("ingest_runs_state_check")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("ingest_runs_pkey")),
        comment="Every ingest: what it was asked, what it brought, how it ended.",
    )
    op.create_table(
        "chunks",
        sa.Column(
            "id",
            sa.BigInteger(),
            sa.Identity(always=True),
            nullable=False,
            comment="Number of the chunk; file_locations.caf_file_id points here.",
        ),
        sa.Column("run_id", sa.BigInteger(), nullable=True, comment="The run that wrote the chunk."),
        sa.Column(
            "size_bytes",
            sa.BigInteger(),
            nullable=True,
            comment="Size of the whole object: data, index and footer.",
        ),
        sa.Column(
            "data_bytes",
            sa.BigInteger(),
            nullable=True,
            comment="Size of the data section, dead bytes included.",
        ),
        sa.Column(
            "index_start_byte", sa.BigInteger(), nullable=True, comment="Where the object's own index begins."
        ),
        sa.Column(
            "index_end_byte",
            sa.BigInteger(),
            nullable=True,
            comment="One past the end of the object's own index.",
        ),
        sa.Column(
            "file_count",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Files in the object's own index.",
        ),
        sa.Column(
            "live_file_count",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Rows of file_locations that point here.",
        ),
        sa.Column(
            "live_bytes",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Bytes of the files that file_locations points to here.",
        ),
        sa.Column(
            "begun_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When the row was made, before the first byte was written.",
        ),
        sa.Column(
            "committed_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When the object was durable and all its mappings were committed.",
        ),
        sa.Column(
            "abandoned_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When the writer, or recover, gave the chunk up.",
        ),
        sa.Column(
            "retired_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When the last live file left the chunk for good.",
        ),
        sa.Column(
            "deleted_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When the object was deleted from its store.",
        ),
        sa.Column(
            "lease_expires_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="While writing: the writer is taken for dead after this time.",
        ),
        sa.Column("uuid", sa.Uuid(), nullable=False, comment="Name of the chunk everywhere outside SQL."),
        sa.Column(
            "state",
            sa.Text(),
            server_default=sa.text("'writing'"),
            nullable=False,
            comment="writing -> committed or abandoned; committed -> retired -> deleted.",
        ),
        sa.Column("format", sa.Text(), nullable=False, comment="Format of the archive: caf."),
        sa.Column("store", sa.Text(), nullable=False, comment="URL of the store that holds the object."),
        sa.Column("object_key", sa.Text(), nullable=False, comment="Key of the object in its store."),
        sa.Column(
            "lease_owner",
            sa.Text(),
            nullable=True,
            comment="While writing: host, process id and run of the writer.",
        ),
        sa.Column(
            "crc64nvme",
            sa.Text(),
            nullable=True,
            comment="CRC-64/NVME of the whole object in base64, as S3 shows it.",
        ),
        sa.Column(
            "etag",
            sa.Text(),
            nullable=True,
            comment="Entity tag that the store gave the object; NULL for folders.",
        ),
        sa.CheckConstraint(
            "state IN ('writing', 'abandoned') OR (size_bytes IS NOT NULL AND data_bytes IS NOT NULL AND index_start_byte IS NOT NULL AND index_end_byte IS NOT NULL AND committed_at IS NOT NULL)",
            name=op.f("chunks_whole_check"),
        ),
        sa.CheckConstraint(
            "state IN ('writing', 'committed', 'abandoned', 'retired', 'deleted')",
            name=op.f("chunks_state_check"),
        ),
        sa.CheckConstraint("live_file_count >= 0 AND live_bytes >= 0", name=op.f("chunks_live_check")),
        sa.ForeignKeyConstraint(["run_id"], ["ingest_runs.id"], name=op.f("chunks_run_id_fkey")),
        sa.PrimaryKeyConstraint("id", name=op.f("chunks_pkey")),
        sa.UniqueConstraint("store", "object_key", name=op.f("chunks_store_key")),
        sa.UniqueConstraint("uuid", name=op.f("chunks_uuid_key")),
        comment="One row per archive object (chunk), through its whole life.",
    )
    op.create_index(
        "chunks_open_idx",
        "chunks",
        ["lease_expires_at"],
        unique=False,
        postgresql_where=sa.text("state = 'writing'"),
    )
    op.create_index(op.f("chunks_run_id_idx"), "chunks", ["run_id"], unique=False)
    op.create_table(
        "retired_locations",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False, comment="Order of retirement."),
        sa.Column(
            "caf_file_id",
            sa.BigInteger(),
            nullable=False,
            comment="The chunk: chunks.id. See docs/decisions/0003.",
        ),
        sa.Column("start_byte", sa.BigInteger(), nullable=False, comment="First byte of the file in the chunk."),
        sa.Column(
            "end_byte",
            sa.BigInteger(),
            nullable=False,
            comment="One past its last byte: the size is end_byte - start_byte.",
        ),
        sa.Column("crc32c", sa.BigInteger(), nullable=False, comment="CRC-32C (Castagnoli) of the file, unsigned."),
        sa.Column(
            "modified_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="Modification time at the source, cut to microseconds; NULL where the source has none.",
        ),
        sa.Column("run_id", sa.BigInteger(), nullable=True, comment="The run that retired it."),
        sa.Column(
            "retired_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was retired.",
        ),
        sa.Column("file_path", sa.Text(collation="C"), nullable=False, comment="Name that pointed there."),
        sa.Column(
            "reason",
            sa.Text(),
            nullable=False,
            comment="replaced (a newer version was committed) or skipped (packed, but another run was first).",
        ),
        sa.CheckConstraint("reason IN ('replaced', 'skipped')", name=op.f("retired_locations_reason_check")),
        sa.ForeignKeyConstraint(["run_id"], ["ingest_runs.id"], name=op.f("retired_locations_run_id_fkey")),
        sa.PrimaryKeyConstraint("id", name=op.f("retired_locations_pkey")),
        comment="What paths pointed to before: every entry of a chunk is either here or in file_locations.",
    )
    op.create_index(op.f("retired_locations_caf_file_id_idx"), "retired_locations", ["caf_file_id"], unique=False)
    op.create_index(op.f("retired_locations_file_path_idx"), "retired_locations", ["file_path"], unique=False)
    op.create_table(
        "events",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False, comment="Order of the events."),
        sa.Column("run_id", sa.BigInteger(), nullable=True, comment="The run it belongs to."),
        sa.Column("chunk_id", sa.BigInteger(), nullable=True, comment="The chunk it is about."),
        sa.Column(
            "happened_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was recorded.",
        ),
        sa.Column(
            "kind",
            sa.Text(),
            nullable=False,
            comment="chunk_begun, chunk_committed, chunk_abandoned, file_failed.",
        ),
        sa.Column(
            "file_path",
            sa.Text(),
            nullable=True,
            comment="The file it is about, with undecodable bytes escaped.",
        ),
        sa.Column("detail", sa.Text(), nullable=True, comment="What happened, in one line."),
        sa.ForeignKeyConstraint(["chunk_id"], ["chunks.id"], name=op.f("events_chunk_id_fkey")),
        sa.ForeignKeyConstraint(["run_id"], ["ingest_runs.id"], name=op.f("events_run_id_fkey")),
        sa.PrimaryKeyConstraint("id", name=op.f("events_pkey")),
        comment="Append-only log of what happened to runs, chunks and single files.",
    )
    op.create_index(op.f("events_chunk_id_idx"), "events", ["chunk_id"], unique=False)
    op.create_index(op.f("events_run_id_idx"), "events", ["run_id"], unique=False)
    op.execute(KEEP_CHUNKS)
    op.execute("COMMENT ON TABLE alembic_version IS 'Revision of this schema: see cafcat db current.'")
    op.execute("COMMENT ON COLUMN alembic_version.version_num IS 'Revision of this schema.'")


def downgrade() -> None:
    """Drop all tables."""
    op.drop_index(op.f("events_run_id_idx"), table_name="events")
    op.drop_index(op.f("events_chunk_id_idx"), table_name="events")
    op.drop_table("events")
    op.drop_index(op.f("retired_locations_file_path_idx"), table_name="retired_locations")
    op.drop_index(op.f("retired_locations_caf_file_id_idx"), table_name="retired_locations")
    op.drop_table("retired_locations")
    op.drop_index(op.f("chunks_run_id_idx"), table_name="chunks")
    op.drop_index("chunks_open_idx", table_name="chunks", postgresql_where=sa.text("state = 'writing'"))
    op.drop_table("chunks")
    op.execute("DROP FUNCTION chunks_are_kept()")
    op.drop_table("ingest_runs")
    op.drop_index(op.f("file_locations_caf_file_id_idx"), table_name="file_locations", postgresql_using="brin")
    op.drop_table("file_locations")
