"""Create the views again: `changes_between` has files that were removed and undeleted after the later run.

Revision: 0014, after 0013. Only the comment of `events.happened_at` changes. The views are created after the last
migration (migrations/env.py).
"""

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change the comment. The views are created after the migration."""
    comment = "When it was recorded; of chunk_rebuilt, since when the files are current."
    op.execute(f"COMMENT ON COLUMN events.happened_at IS '{comment}'")
