"""Create the views again: `cafcat_ops.runs.seconds` is NULL for runs that ended at an unknown time.

Revision: 0012, after 0011. No table changes. The views are created after the last migration (migrations/env.py). For
runs of a rebuilt catalog, the view counted the seconds until now.
"""

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change nothing: the views are created after the migration."""
