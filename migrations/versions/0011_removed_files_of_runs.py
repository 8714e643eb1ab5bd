"""Add the number of files that an ingest removed, because they were gone at the source.

Revision: 0011, after 0010. The column has a default, so no row is rewritten. The view `cafcat_ops.runs` gains the
column after the migration (migrations/env.py). Adoptions of archives are runs from this version on.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, and mention adoptions in comments."""
    op.add_column(
        "ingest_runs",
        sa.Column(
            "files_removed",
            sa.BigInteger(),
            server_default="0",
            nullable=False,
            comment="Files that --delete removed from the catalog, because they were gone at the source.",
        ),
    )
    op.alter_column("chunks", "run_id", comment="The run that wrote or adopted the chunk.")
    op.create_table_comment(
        "ingest_runs", "Every ingest and adoption: what it was asked, what it brought, how it ended."
    )
