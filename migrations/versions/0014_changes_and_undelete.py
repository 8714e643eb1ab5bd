"""Create the views again: `changes_between` has files that were removed and undeleted after the later run.

Revision: 0014, after 0013. Only comments change. The views are created after the last
migration (migrations/env.py).
"""

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_COMMENTS = {
    "events.happened_at": "When it was recorded; of chunk_rebuilt, since when the files are current.",
    "findings.kind": "file (its bytes), index, gap (bytes of no file), size, missing, mapping (index and rows differ), "
    "catalog (rows contradict each other), source (differs at its source), absent (gone at its source), unpacked (only "
    "at its source), unreadable (not given).",
    "findings.is_live": "True if a live file needs the damaged bytes; false if only replaced or removed files do, or "
    "none. True for all findings at a source.",
}


def upgrade() -> None:
    """Change comments. The views are created after the migration."""
    for column, comment in _COMMENTS.items():
        op.execute(f"COMMENT ON COLUMN {column} IS '{comment}'")
