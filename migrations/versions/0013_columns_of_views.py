"""Create the views again: `file_history` has who ended a version, `single_copy` and `unverified` have adopted archives.

Revision: 0013, after 0012. No table changes. The views are created after the last migration (migrations/env.py).
"""

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change nothing: the views are created after the migration."""
