"""Create the views again: `changes_between` has files that were removed and undeleted after the later run.

Revision: 0014, after 0013. No table changes. The views are created after the last migration (migrations/env.py).
"""

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change nothing: the views are created after the migration."""
