"""Set when autovacuum processes the large tables.

Revision: 0009, after 0008. No data changes. cafcat/catalog/tables.py has the reasons (STORAGE). file_locations can be a
plain table or a table of partitions at this revision: cafcat/catalog/layout.py.
"""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

STORAGE = {
    "file_locations": {
        "autovacuum_vacuum_insert_scale_factor": "0",
        "autovacuum_vacuum_insert_threshold": "1000000",
        "autovacuum_vacuum_scale_factor": "0.05",
        "autovacuum_freeze_min_age": "0",
    },
    "retired_locations": {
        "autovacuum_vacuum_insert_scale_factor": "0",
        "autovacuum_vacuum_insert_threshold": "5000000",
        "autovacuum_freeze_min_age": "0",
    },
    "journal_files": {
        "autovacuum_vacuum_scale_factor": "0",
        "autovacuum_vacuum_threshold": "100000",
    },
}


def upgrade() -> None:
    """Set the storage parameters."""
    for table, options in STORAGE.items():
        values = ", ".join(f"{name} = {value}" for name, value in options.items())
        op.execute(f"ALTER TABLE {table} SET ({values})")


def downgrade() -> None:
    """Reset the storage parameters, for development. file_locations must be a plain table."""
    for table, options in STORAGE.items():
        op.execute(f"ALTER TABLE {table} RESET ({', '.join(options)})")
