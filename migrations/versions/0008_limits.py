"""Add limits of requests and bytes, the shares of processes in them, and the pause of a run.

Revision: 0008, after 0007. Two new tables, and one column that may be NULL, which rewrites no table.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables and the column."""
    op.add_column(
        "ingest_runs",
        sa.Column(
            "paused_at",
            sa.DateTime(timezone=True),
            comment="Since when the run is to be paused; NULL if it is not. Its processes look every 5 seconds.",
        ),
    )
    op.create_table(
        "limits",
        sa.Column(
            "set_at",
            sa.DateTime(timezone=True),
            nullable=False,
            server_default=sa.text("now()"),
            comment="When the limit was set.",
        ),
        sa.Column(
            "in_flight_bytes",
            sa.BigInteger(),
            comment="Most bytes of requests at the same time; NULL for no limit.",
        ),
        sa.Column("bytes_per_second", sa.BigInteger(), comment="Most bytes per second; NULL for no limit."),
        sa.Column("requests", sa.Integer(), comment="Most requests at the same time; NULL for no limit."),
        sa.Column(
            "url",
            sa.Text(collation="C"),
            nullable=False,
            comment="URL of a store or source, or of a folder of one. The limit is for all objects at or below it.",
        ),
        sa.CheckConstraint("requests > 0 AND in_flight_bytes > 0 AND bytes_per_second > 0", name="positive"),
        sa.PrimaryKeyConstraint("url", name="limits_pkey"),
        comment="Limits of requests and bytes, for all processes together.",
    )
    op.create_table(
        "limit_shares",
        sa.Column(
            "expires_at",
            sa.DateTime(timezone=True),
            nullable=False,
            comment="When the share ends, unless its process renews it before.",
        ),
        sa.Column(
            "in_flight_bytes", sa.BigInteger(), comment="Share of limits.in_flight_bytes; NULL for no limit."
        ),
        sa.Column(
            "bytes_per_second", sa.BigInteger(), comment="Share of limits.bytes_per_second; NULL for no limit."
        ),
        sa.Column("requests", sa.Integer(), comment="Share of limits.requests; NULL for no limit."),
        sa.Column("url", sa.Text(collation="C"), nullable=False, comment="The limit."),
        sa.Column("worker", sa.Text(collation="C"), nullable=False, comment="Process that has the share."),
        sa.ForeignKeyConstraint(["url"], ["limits.url"], name="limit_shares_url_fkey", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("url", "worker", name="limit_shares_pkey"),
        comment="Shares of limits that processes use. The shares of a limit never exceed it.",
    )


def downgrade() -> None:
    """Drop the tables and the column, for development. The limits are lost."""
    op.drop_table("limit_shares")
    op.drop_table("limits")
    op.drop_column("ingest_runs", "paused_at")
