"""Add the journal, copies of chunks, backups and verifications, and the state `retired` of chunks.

Revision: 0003, after 0002.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# Insert a journal record for each commit before this revision. Recover writes these records into the stores.
FILL_JOURNAL = """
INSERT INTO journal (chunk_id, happened_at, uuid, kind, unwritten)
SELECT id, committed_at, gen_random_uuid(), 'commit', ARRAY[store]
FROM chunks WHERE state = 'committed' ORDER BY committed_at, id;
INSERT INTO journal_files (journal_id, caf_file_id, start_byte, file_path)
SELECT j.id, r.caf_file_id, r.start_byte, r.file_path
FROM retired_locations AS r JOIN journal AS j ON j.chunk_id = r.caf_file_id
WHERE r.reason = 'skipped'
ON CONFLICT DO NOTHING;
UPDATE chunks SET state = 'retired', retired_at = now() WHERE state = 'committed' AND live_file_count = 0;
"""
REASONS = "'replaced', 'skipped', 'removed', 'moved'"


def upgrade() -> None:
    """Add the tables and the state, and fill the journal."""
    _change_tables()
    _create_journal()
    _create_copies_and_backups()
    _create_verifications()
    op.execute(FILL_JOURNAL)


def _change_tables() -> None:
    owner = "Process of the run, as in chunks.lease_owner: recover sees by it that it died."
    op.add_column("ingest_runs", sa.Column("owner", sa.Text(), nullable=True, comment=owner))
    op.add_column(
        "chunks",
        sa.Column(
            "index_crc32c",
            sa.BigInteger(),
            nullable=True,
            comment="CRC-32C of the object from index_start_byte to its end; NULL if nobody noted it.",
        ),
    )
    op.add_column(
        "chunks",
        sa.Column(
            "moves_from",
            postgresql.ARRAY(sa.BigInteger()),
            nullable=True,
            comment="chunks.id of those whose files were copied into it, by repack or repair; NULL for an ingest.",
        ),
    )
    op.alter_column(
        "chunks",
        "retired_at",
        existing_type=postgresql.TIMESTAMP(timezone=True),
        comment="When the last live file left the chunk; NULL again if one is undeleted.",
        existing_comment="When the last live file left the chunk for good.",
        existing_nullable=True,
    )
    op.alter_column(
        "chunks",
        "state",
        existing_type=sa.TEXT(),
        comment="writing -> committed or abandoned; committed <-> retired -> deleted.",
        existing_comment="writing -> committed or abandoned; committed -> retired -> deleted.",
        existing_nullable=False,
        existing_server_default=sa.text("'writing'::text"),
    )
    op.create_index(
        "chunks_retired_idx", "chunks", ["retired_at"], unique=False, postgresql_where=sa.text("state = 'retired'")
    )
    op.alter_column(
        "events",
        "kind",
        existing_type=sa.TEXT(),
        comment="chunk_begun, chunk_committed, chunk_abandoned, file_failed, ...",
        existing_comment="chunk_begun, chunk_committed, chunk_abandoned, file_failed.",
        existing_nullable=False,
    )
    op.alter_column(
        "retired_locations",
        "reason",
        existing_type=sa.TEXT(),
        comment="replaced (a newer version was committed), skipped (packed, but another version stayed), removed (by rm) or moved (into another chunk, by repack or repair).",
        existing_comment="replaced (a newer version was committed) or skipped (packed, but another run was first).",
        existing_nullable=False,
    )
    op.drop_constraint(op.f("retired_locations_reason_check"), "retired_locations")
    op.create_check_constraint(
        op.f("retired_locations_reason_check"), "retired_locations", f"reason IN ({REASONS})"
    )
    op.drop_index("chunks_left_idx", table_name="chunks")
    left = sa.text("state IN ('abandoned', 'deleted') AND deleted_at IS NULL")
    op.create_index("chunks_left_idx", "chunks", ["id"], postgresql_where=left)


def _create_journal() -> None:
    op.create_table(
        "journal",
        sa.Column(
            "id",
            sa.BigInteger(),
            sa.Identity(always=True),
            nullable=False,
            comment="Order of the changes: of two that concern the same path, the later one has the higher number.",
        ),
        sa.Column(
            "chunk_id", sa.BigInteger(), nullable=True, comment="The chunk that was committed, if it was that."
        ),
        sa.Column(
            "happened_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was committed.",
        ),
        sa.Column("uuid", sa.Uuid(), nullable=False, comment="Part of the object key, so that it is never taken."),
        sa.Column(
            "kind",
            sa.Text(),
            nullable=False,
            comment="commit (of a chunk), move (the same, by repack or repair), remove (rm) or restore (undelete).",
        ),
        sa.Column(
            "unwritten",
            postgresql.ARRAY(sa.Text()),
            nullable=False,
            comment="URLs of the stores that do not have it yet: recover writes it there.",
        ),
        sa.CheckConstraint("kind IN ('commit', 'move', 'remove', 'restore')", name=op.f("journal_kind_check")),
        sa.ForeignKeyConstraint(["chunk_id"], ["chunks.id"], name=op.f("journal_chunk_id_fkey")),
        sa.PrimaryKeyConstraint("id", name=op.f("journal_pkey")),
        sa.UniqueConstraint("uuid", name=op.f("journal_uuid_key")),
        comment="Every change of file_locations, in order. Stores keep it beside the chunks, for a rebuild.",
    )
    op.create_index(op.f("journal_chunk_id_idx"), "journal", ["chunk_id"], unique=False)
    op.create_index(
        "journal_unwritten_idx", "journal", ["id"], unique=False, postgresql_where=sa.text("unwritten <> '{}'")
    )
    op.create_table(
        "journal_files",
        sa.Column("journal_id", sa.BigInteger(), nullable=False, comment="The change: journal.id."),
        sa.Column("caf_file_id", sa.BigInteger(), nullable=False, comment="The chunk: chunks.id."),
        sa.Column("start_byte", sa.BigInteger(), nullable=False, comment="First byte of the file in the chunk."),
        sa.Column("file_path", sa.Text(collation="C"), nullable=False, comment="Name of the file."),
        sa.ForeignKeyConstraint(["journal_id"], ["journal.id"], name=op.f("journal_files_journal_id_fkey")),
        sa.PrimaryKeyConstraint("journal_id", "file_path", name=op.f("journal_files_pkey")),
        comment="Files that a change is about, until it is in every store. Of a commit: those that were skipped.",
    )


def _create_copies_and_backups() -> None:
    op.create_table(
        "backups",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False, comment="Number of the backup."),
        sa.Column(
            "journal_id", sa.BigInteger(), nullable=True, comment="The last change (journal.id) that is in it."
        ),
        sa.Column("size_bytes", sa.BigInteger(), nullable=True, comment="Size of the object."),
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
            comment="When the backup was durable and whole.",
        ),
        sa.Column(
            "abandoned_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When the writer, or recover, gave the backup up.",
        ),
        sa.Column(
            "deleted_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When the store had nothing of it any more, neither object nor upload.",
        ),
        sa.Column(
            "lease_expires_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="While writing: the writer is taken for dead after this time.",
        ),
        sa.Column(
            "state",
            sa.Text(),
            server_default=sa.text("'writing'"),
            nullable=False,
            comment="writing -> committed or abandoned; committed -> deleted.",
        ),
        sa.Column("store", sa.Text(), nullable=False, comment="URL of the store that holds the object."),
        sa.Column("object_key", sa.Text(), nullable=False, comment="Key of the object in that store."),
        sa.Column(
            "lease_owner", sa.Text(), nullable=True, comment="While writing: host and process of the writer."
        ),
        sa.Column(
            "etag", sa.Text(), nullable=True, comment="Entity tag that the store gave the object; NULL for folders."
        ),
        sa.Column(
            "upload_id",
            sa.Text(),
            nullable=True,
            comment="Multipart upload that writes the object; NULL for folders.",
        ),
        sa.CheckConstraint(
            "state IN ('writing', 'committed', 'abandoned', 'deleted')", name=op.f("backups_state_check")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("backups_pkey")),
        sa.UniqueConstraint("store", "object_key", name=op.f("backups_store_key")),
        comment="Backups of the catalog, as objects in a store.",
    )
    op.create_table(
        "chunk_copies",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False, comment="Number of the copy."),
        sa.Column("chunk_id", sa.BigInteger(), nullable=False, comment="The chunk that it is a copy of."),
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
            comment="When the copy was durable and whole.",
        ),
        sa.Column(
            "abandoned_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When the writer, or recover, gave the copy up.",
        ),
        sa.Column(
            "deleted_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When the store had nothing of it any more, neither object nor upload.",
        ),
        sa.Column(
            "lease_expires_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="While writing: the writer is taken for dead after this time.",
        ),
        sa.Column(
            "state",
            sa.Text(),
            server_default=sa.text("'writing'"),
            nullable=False,
            comment="writing -> committed or abandoned; committed -> deleted.",
        ),
        sa.Column("store", sa.Text(), nullable=False, comment="URL of the store that holds the object."),
        sa.Column("object_key", sa.Text(), nullable=False, comment="Key of the object in that store."),
        sa.Column(
            "lease_owner", sa.Text(), nullable=True, comment="While writing: host and process of the writer."
        ),
        sa.Column(
            "etag", sa.Text(), nullable=True, comment="Entity tag that the store gave the object; NULL for folders."
        ),
        sa.Column(
            "upload_id",
            sa.Text(),
            nullable=True,
            comment="Multipart upload that writes the object; NULL for folders.",
        ),
        sa.CheckConstraint(
            "state IN ('writing', 'committed', 'abandoned', 'deleted')", name=op.f("chunk_copies_state_check")
        ),
        sa.ForeignKeyConstraint(["chunk_id"], ["chunks.id"], name=op.f("chunk_copies_chunk_id_fkey")),
        sa.PrimaryKeyConstraint("id", name=op.f("chunk_copies_pkey")),
        comment="Further objects with the very bytes of a chunk: reads go there when the first one fails.",
    )
    op.create_index(op.f("chunk_copies_chunk_id_idx"), "chunk_copies", ["chunk_id"], unique=False)
    op.create_index(
        "chunk_copies_object_key",
        "chunk_copies",
        ["store", "object_key"],
        unique=True,
        postgresql_where=sa.text("deleted_at IS NULL"),
    )


def _create_verifications() -> None:
    op.create_table(
        "verify_runs",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False, comment="Number of the run."),
        sa.Column(
            "started_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it began.",
        ),
        sa.Column(
            "finished_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When it had checked all it was to check; NULL while it can go on.",
        ),
        sa.Column(
            "process_id",
            sa.Integer(),
            nullable=False,
            comment="Process id on its host, of the one that went on last.",
        ),
        sa.Column("level", sa.Text(), nullable=False, comment="catalog, index, data or source."),
        sa.Column("host", sa.Text(), nullable=False, comment="Host name, of the one that went on last."),
        sa.Column(
            "scope",
            postgresql.JSONB(),
            nullable=False,
            comment="What it was to check: chunks, prefix, older_than, sample, ...; a run of the same scope goes on.",
        ),
        sa.CheckConstraint("level IN ('catalog', 'index', 'data', 'source')", name=op.f("verify_runs_level_check")),
        sa.PrimaryKeyConstraint("id", name=op.f("verify_runs_pkey")),
        comment="Every verify: what it was asked.",
    )
    op.create_index(
        "verify_runs_open_idx", "verify_runs", ["id"], unique=False, postgresql_where=sa.text("finished_at IS NULL")
    )
    op.create_table(
        "verifications",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False, comment="Number of the check."),
        sa.Column("run_id", sa.BigInteger(), nullable=False, comment="The verify that made it."),
        sa.Column(
            "chunk_id", sa.BigInteger(), nullable=True, comment="The chunk; NULL for the catalog as a whole."
        ),
        sa.Column("copy_id", sa.BigInteger(), nullable=True, comment="Which copy; NULL for the chunk itself."),
        sa.Column(
            "files_checked",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Files whose bytes, or rows, were looked at.",
        ),
        sa.Column(
            "bytes_read",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Bytes read from the store or the source.",
        ),
        sa.Column(
            "finding_count",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Rows in findings.",
        ),
        sa.Column(
            "started_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it began.",
        ),
        sa.Column(
            "finished_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was done.",
        ),
        sa.Column(
            "level", sa.Text(), nullable=False, comment="catalog, index, data or source: each looks at more."
        ),
        sa.Column(
            "verdict",
            sa.Text(),
            nullable=False,
            comment="ok, damaged (see findings), missing (no object) or unreadable (the store did not give it).",
        ),
        sa.Column("checked_by", sa.Text(), nullable=False, comment="Host and process that checked."),
        sa.CheckConstraint(
            "level IN ('catalog', 'index', 'data', 'source')", name=op.f("verifications_level_check")
        ),
        sa.CheckConstraint(
            "verdict IN ('ok', 'damaged', 'missing', 'unreadable')", name=op.f("verifications_verdict_check")
        ),
        sa.ForeignKeyConstraint(["chunk_id"], ["chunks.id"], name=op.f("verifications_chunk_id_fkey")),
        sa.ForeignKeyConstraint(["copy_id"], ["chunk_copies.id"], name=op.f("verifications_copy_id_fkey")),
        sa.ForeignKeyConstraint(["run_id"], ["verify_runs.id"], name=op.f("verifications_run_id_fkey")),
        sa.PrimaryKeyConstraint("id", name=op.f("verifications_pkey")),
        comment="History of checks: which chunk was checked when, at which level, with what verdict.",
    )
    op.create_index(op.f("verifications_chunk_id_idx"), "verifications", ["chunk_id", "id"], unique=False)
    op.create_index(op.f("verifications_run_id_idx"), "verifications", ["run_id"], unique=False)
    op.create_table(
        "findings",
        sa.Column(
            "id", sa.BigInteger(), sa.Identity(always=True), nullable=False, comment="Number of the finding."
        ),
        sa.Column("verification_id", sa.BigInteger(), nullable=False, comment="The check that found it."),
        sa.Column(
            "start_byte",
            sa.BigInteger(),
            nullable=True,
            comment="First byte of what is wrong, in the chunk, if it is about bytes.",
        ),
        sa.Column("end_byte", sa.BigInteger(), nullable=True, comment="One past its last byte."),
        sa.Column(
            "kind",
            sa.Text(),
            nullable=False,
            comment="file (its bytes), index, gap (bytes of no file), size, missing, mapping (index and rows differ), catalog (rows contradict each other), source (differs at its source), unreadable (not given).",
        ),
        sa.Column("file_path", sa.Text(collation="C"), nullable=True, comment="The file it is about."),
        sa.Column("detail", sa.Text(), nullable=False, comment="What is wrong, in one line."),
        sa.ForeignKeyConstraint(
            ["verification_id"], ["verifications.id"], name=op.f("findings_verification_id_fkey")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("findings_pkey")),
        comment="What checks found to be wrong.",
    )
    op.create_index(op.f("findings_verification_id_idx"), "findings", ["verification_id"], unique=False)


def downgrade() -> None:
    """Drop the new tables and the state. Their contents are lost, and so are files that rm removed."""
    op.execute("UPDATE chunks SET state = 'committed', retired_at = NULL WHERE state = 'retired'")
    op.execute("UPDATE retired_locations SET reason = 'replaced' WHERE reason NOT IN ('replaced', 'skipped')")
    op.drop_constraint(op.f("retired_locations_reason_check"), "retired_locations")
    op.create_check_constraint(
        op.f("retired_locations_reason_check"), "retired_locations", "reason IN ('replaced', 'skipped')"
    )
    op.drop_index("chunks_left_idx", table_name="chunks")
    left = sa.text("state = 'abandoned' AND deleted_at IS NULL")
    op.create_index("chunks_left_idx", "chunks", ["id"], postgresql_where=left)
    op.alter_column(
        "retired_locations",
        "reason",
        existing_type=sa.TEXT(),
        comment="replaced (a newer version was committed) or skipped (packed, but another run was first).",
        existing_comment="replaced (a newer version was committed), skipped (packed, but another version stayed), removed (by rm) or moved (into another chunk, by repack or repair).",
        existing_nullable=False,
    )
    op.alter_column(
        "events",
        "kind",
        existing_type=sa.TEXT(),
        comment="chunk_begun, chunk_committed, chunk_abandoned, file_failed.",
        existing_comment="chunk_begun, chunk_committed, chunk_abandoned, file_failed, ...",
        existing_nullable=False,
    )
    op.drop_index("chunks_retired_idx", table_name="chunks", postgresql_where=sa.text("state = 'retired'"))
    op.alter_column(
        "chunks",
        "state",
        existing_type=sa.TEXT(),
        comment="writing -> committed or abandoned; committed -> retired -> deleted.",
        existing_comment="writing -> committed or abandoned; committed <-> retired -> deleted.",
        existing_nullable=False,
        existing_server_default=sa.text("'writing'::text"),
    )
    op.alter_column(
        "chunks",
        "retired_at",
        existing_type=postgresql.TIMESTAMP(timezone=True),
        comment="When the last live file left the chunk for good.",
        existing_comment="When the last live file left the chunk; NULL again if one is undeleted.",
        existing_nullable=True,
    )
    op.drop_column("chunks", "moves_from")
    op.drop_column("chunks", "index_crc32c")
    op.drop_column("ingest_runs", "owner")
    op.drop_index(op.f("findings_verification_id_idx"), table_name="findings")
    op.drop_table("findings")
    op.drop_index(op.f("verifications_run_id_idx"), table_name="verifications")
    op.drop_index(op.f("verifications_chunk_id_idx"), table_name="verifications")
    op.drop_table("verifications")
    op.drop_table("journal_files")
    op.drop_index("journal_unwritten_idx", table_name="journal", postgresql_where=sa.text("unwritten <> '{}'"))
    op.drop_index(op.f("journal_chunk_id_idx"), table_name="journal")
    op.drop_table("journal")
    op.drop_index(
        "chunk_copies_object_key", table_name="chunk_copies", postgresql_where=sa.text("deleted_at IS NULL")
    )
    op.drop_index(op.f("chunk_copies_chunk_id_idx"), table_name="chunk_copies")
    op.drop_table("chunk_copies")
    op.drop_index("verify_runs_open_idx", table_name="verify_runs", postgresql_where=sa.text("finished_at IS NULL"))
    op.drop_table("verify_runs")
    op.drop_table("backups")
