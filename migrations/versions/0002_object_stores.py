"""Add columns and a table for object stores: uploads, entity tags of files, positions of listings.

Revision: 0002, after 0001.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

SOURCE_ETAG = "Entity tag of the file at its source, without quotes; NULL where the source has none."


def upgrade() -> None:
    """Add the columns and the table. New columns are NULL in all rows, so PostgreSQL rewrites no table."""
    upload_id = "Multipart upload that writes the object: what recover aborts; NULL for folders."
    op.add_column("chunks", sa.Column("upload_id", sa.Text(), nullable=True, comment=upload_id))
    op.alter_column(
        "chunks",
        "deleted_at",
        existing_type=sa.DateTime(timezone=True),
        comment="When the store had nothing of it any more, neither object nor upload.",
        existing_comment="When the object was deleted from its store.",
        existing_nullable=True,
    )
    left = sa.text("state = 'abandoned' AND deleted_at IS NULL")
    op.create_index("chunks_left_idx", "chunks", ["id"], postgresql_where=left)
    for table in ("file_locations", "retired_locations"):
        op.add_column(table, sa.Column("source_etag", sa.Text(), nullable=True, comment=SOURCE_ETAG))
    _create_listings()


def _create_listings() -> None:
    op.create_table(
        "listings",
        sa.Column(
            "id", sa.BigInteger(), sa.Identity(always=True), nullable=False, comment="Number of the listing."
        ),
        sa.Column("run_id", sa.BigInteger(), nullable=True, comment="The run that went on with it last."),
        sa.Column(
            "started_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When the listing began.",
        ),
        sa.Column(
            "advanced_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When its position was last written; NULL if never.",
        ),
        sa.Column(
            "finished_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When it came to its end; NULL while it can go on.",
        ),
        sa.Column("source", sa.Text(), nullable=False, comment="URL of what is listed."),
        sa.Column(
            "scope",
            sa.Text(),
            nullable=False,
            comment="What else the listing depends on: server, prefix, patterns, what happens to conflicts.",
        ),
        sa.Column(
            "position",
            sa.Text(),
            nullable=True,
            comment="Every object up to this key was dealt with: committed, unchanged, or refused.",
        ),
        sa.ForeignKeyConstraint(["run_id"], ["ingest_runs.id"], name=op.f("listings_run_id_fkey")),
        sa.PrimaryKeyConstraint("id", name=op.f("listings_pkey")),
        comment="Listings of remote sources: where an interrupted one goes on.",
    )
    op.create_index(
        "listings_open_key",
        "listings",
        ["source", "scope"],
        unique=True,
        postgresql_where=sa.text("finished_at IS NULL"),
    )
    op.create_index(op.f("listings_run_id_idx"), "listings", ["run_id"])


def downgrade() -> None:
    """Drop the columns and the table. Their contents are lost."""
    op.drop_table("listings")
    for table in ("retired_locations", "file_locations"):
        op.drop_column(table, "source_etag")
    op.drop_index("chunks_left_idx", table_name="chunks")
    op.drop_column("chunks", "upload_id")
    op.alter_column(
        "chunks",
        "deleted_at",
        existing_type=sa.DateTime(timezone=True),
        comment="When the object was deleted from its store.",
        existing_nullable=True,
    )
