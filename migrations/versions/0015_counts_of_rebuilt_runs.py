"""Create the views again: in `cafcat_ops.runs`, the lost counts and sources of rebuilt runs are NULL, not 0.

Revision: 0015, after 0014. The views are created after the last migration (migrations/env.py).
"""

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change nothing. The views are created after the migration."""
