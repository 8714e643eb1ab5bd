"""Add the shards of ingests by many workers, and requests to the workers of a run.

Revision: 0007, after 0006. A new table, and a new column without a default: no table is rewritten.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table and the column."""
    op.create_table(
        "shards",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False, comment="Number of the shard."),
        sa.Column(
            "run_id",
            sa.BigInteger(),
            nullable=False,
            comment="The run that works on it, or was the last one to do so.",
        ),
        sa.Column(
            "planned_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When the source was cut into shards.",
        ),
        sa.Column("begun_at", sa.DateTime(timezone=True), comment="When a worker first took it; NULL if none has."),
        sa.Column(
            "finished_at", sa.DateTime(timezone=True), comment="When all its files were dealt with; NULL before."
        ),
        sa.Column(
            "lease_expires_at",
            sa.DateTime(timezone=True),
            comment="While running: the worker is taken for dead after this time.",
        ),
        sa.Column(
            "source_number", sa.Integer(), nullable=False, comment="Place of the source in the command, from 0."
        ),
        sa.Column(
            "attempts",
            sa.Integer(),
            server_default=sa.text("0"),
            nullable=False,
            comment="How many times a worker took it.",
        ),
        sa.Column(
            "state",
            sa.Text(),
            server_default=sa.text("'waiting'"),
            nullable=False,
            comment="waiting -> running -> finished; running -> waiting if its worker failed; cancelled if the source was cut anew.",
        ),
        sa.Column("source", sa.Text(), nullable=False, comment="The source: a URL, or an absolute path."),
        sa.Column(
            "scope",
            sa.Text(),
            nullable=False,
            comment="What else the shard depends on: prefix, patterns, inventory, ...",
        ),
        sa.Column(
            "after_position",
            sa.Text(collation="C"),
            comment="The shard begins after this position (key, path, offset); NULL for the beginning of the source.",
        ),
        sa.Column(
            "through_position",
            sa.Text(collation="C"),
            comment="The shard ends with this position; NULL for the end of the source.",
        ),
        sa.Column(
            "position",
            sa.Text(collation="C"),
            comment="Every file up to this position was dealt with: committed, unchanged, or refused.",
        ),
        sa.Column("owner", sa.Text(), comment="The worker, as in chunks.lease_owner; NULL while nobody has it."),
        sa.Column("host", sa.Text(), comment="Host name of the worker that had it last."),
        sa.Column("error", sa.Text(), comment="Why the last attempt failed; NULL otherwise."),
        sa.Column(
            "report",
            JSONB(),
            server_default=sa.text("'{}'"),
            nullable=False,
            comment="Counts up to the position: files seen, unchanged, skipped, failed; files and bytes handled.",
        ),
        sa.Column("progress", JSONB(), comment="While running: files and bytes handled after the position."),
        sa.CheckConstraint("state IN ('waiting', 'running', 'finished', 'cancelled')", name="shards_state_check"),
        sa.ForeignKeyConstraint(["run_id"], ["ingest_runs.id"], name="shards_run_id_fkey"),
        sa.PrimaryKeyConstraint("id", name="shards_pkey"),
        comment="Parts of the sources of ingests by many workers: which part is done, and who works on it.",
    )
    op.create_index(
        "shards_open_idx", "shards", ["run_id", "id"], postgresql_where=sa.text("state IN ('waiting', 'running')")
    )
    op.create_index("shards_run_id_idx", "shards", ["run_id"])
    op.add_column(
        "ingest_runs",
        sa.Column(
            "request",
            sa.Text(),
            comment="What the workers of a run with shards are asked to do: stop after the commit of their open chunks, or abort at once; NULL: go on.",
        ),
    )
    op.create_check_constraint("request", "ingest_runs", "request IN ('stop', 'abort')")


def downgrade() -> None:
    """Drop the table and the column, for development."""
    op.drop_table("shards")
    op.drop_constraint("ingest_runs_request_check", "ingest_runs")
    op.drop_column("ingest_runs", "request")
