"""Add the run and the time of each file, totals of folders, and who did what.

Revision: 0010, after 0009. New columns may be NULL, so no table is rewritten. Totals of folders, and by how much each
event changed the catalog, are computed once from the existing rows: all rows of file_locations are read. The views of
cafcat_ops come after the migration (migrations/env.py).
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

LOCATIONS = ("file_locations", "retired_locations")
FOLDER_TOTALS = """
INSERT INTO folder_totals (files, bytes, depth, folder_path)
SELECT sum(p.files), sum(p.bytes), d.depth, array_to_string(p.names[1:d.depth] || ''::text, '/')
FROM (SELECT string_to_array(folder, '/') AS names, files, bytes
      FROM (SELECT coalesce(substring(file_path FROM '^.*/'), '') AS folder, count(*) AS files,
                   sum(coalesce(content_bytes, end_byte - start_byte)) AS bytes
            FROM file_locations GROUP BY 1) AS f OFFSET 0) AS p
CROSS JOIN LATERAL generate_series(0, greatest(cardinality(p.names) - 1, 0)) AS d (depth)
GROUP BY 3, 4
"""


# The event of a commit counts the added files and the bytes of all live files of the chunk. The replaced versions
# were retired in the same transaction, at the same now(). Moves do not change the number of files.
COMMITTED = """
UPDATE events AS e SET files_change = d.numbers[1]::bigint, bytes_change = d.numbers[2]::bigint - coalesce(
    (SELECT sum(coalesce(r.content_bytes, r.end_byte - r.start_byte)) FROM retired_locations AS r
     WHERE r.reason = 'replaced' AND r.retired_at = e.happened_at), 0)
FROM (SELECT id, regexp_match(detail, '^([0-9]+) added, .* ([0-9]+) live_bytes') AS numbers
      FROM events WHERE kind = 'chunk_committed') AS d
WHERE d.id = e.id AND d.numbers IS NOT NULL
  AND NOT EXISTS (SELECT FROM chunks AS c WHERE c.id = e.chunk_id AND c.moves_from IS NOT NULL)
"""
REMOVED = """
UPDATE events AS e SET files_change = CASE WHEN e.kind = 'files_removed' THEN -1 ELSE 1 END * d.numbers[1]::bigint,
       bytes_change = CASE WHEN e.kind = 'files_removed' THEN -1 ELSE 1 END * d.numbers[2]::bigint
FROM (SELECT id, regexp_match(detail, '^([0-9]+) files, ([0-9]+) bytes') AS numbers
      FROM events WHERE kind IN ('files_removed', 'files_restored')) AS d
WHERE d.id = e.id AND d.numbers IS NOT NULL
"""


def upgrade() -> None:
    """Add the columns and tables, and compute the totals."""
    # The environment's time limit is too short for large catalogs.
    op.execute("SET LOCAL statement_timeout = 0")
    _add_columns()
    op.create_table(
        "folder_totals",
        *_total_columns(),
        sa.PrimaryKeyConstraint("depth", "folder_path", name="folder_totals_pkey"),
        comment="Files and bytes in each folder. Changes in folder_deltas are not added yet: see the view folders.",
    )
    op.create_index("folder_totals_empty_idx", "folder_totals", ["depth"], postgresql_where=sa.text("files = 0"))
    op.create_table(
        "folder_deltas",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False, comment="Order of the changes."),
        *_total_columns(),
        sa.PrimaryKeyConstraint("id", name="folder_deltas_pkey"),
        comment="Changes of folder_totals: each commit adds rows, so that no two commits wait for one row.",
    )
    op.create_index("folder_deltas_depth_idx", "folder_deltas", ["depth", "folder_path"])
    op.execute(
        "ALTER TABLE folder_deltas SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000)"
    )
    op.execute(FOLDER_TOTALS)
    op.execute(COMMITTED)
    op.execute(REMOVED)


def _total_columns() -> list[sa.Column]:
    return [
        sa.Column(
            "files",
            sa.BigInteger(),
            nullable=False,
            comment="Number of live files in the folder and all below it.",
        ),
        sa.Column("bytes", sa.BigInteger(), nullable=False, comment="Total size of these files in bytes."),
        sa.Column(
            "depth",
            sa.Integer(),
            nullable=False,
            comment="Number of slashes in folder_path; 0 for the whole catalog.",
        ),
        sa.Column(
            "folder_path",
            sa.Text(collation="C"),
            nullable=False,
            comment="The folder, with a slash at its end; empty for the whole catalog.",
        ),
    ]


def _add_columns() -> None:
    for table in LOCATIONS:
        op.add_column(
            table,
            sa.Column(
                "ingest_run_id",
                sa.BigInteger(),
                comment="Run that brought the file, if that is not chunks.run_id of its chunk: repack and repair move "
                "files to chunks without a run. The view files in cafcat_ops has the run of every file.",
            ),
        )
        op.add_column(
            table,
            sa.Column(
                "current_since",
                sa.DateTime(timezone=True),
                comment="Since when the path has this content, if that is not chunks.committed_at of its chunk: the "
                "file was moved or undeleted since then.",
            ),
        )
    for column in ("ingest_run_id", "current_since"):
        op.create_index(
            f"file_locations_{column}_idx",
            "file_locations",
            [column],
            postgresql_where=sa.text(f"{column} IS NOT NULL"),
        )
    op.create_index(
        "retired_locations_retired_at_idx", "retired_locations", ["retired_at"], postgresql_using="brin"
    )
    who = "Who did it: user and host of the process; NULL in events of earlier versions."
    op.add_column("events", sa.Column("actor", sa.Text(), comment=who))
    op.add_column(
        "events", sa.Column("options", JSONB(), comment="Options of the command, of events of the kind command.")
    )
    change = "By how much the event changed the number of live files; NULL if not."
    op.add_column("events", sa.Column("files_change", sa.BigInteger(), comment=change))
    change = "By how much the event changed the total size of all live files."
    op.add_column("events", sa.Column("bytes_change", sa.BigInteger(), comment=change))
    op.create_index(
        "events_growth_idx", "events", ["happened_at"], postgresql_where=sa.text("files_change IS NOT NULL")
    )
    op.create_index("events_commands_idx", "events", ["id"], postgresql_where=sa.text("kind = 'command'"))
    op.create_table_comment(
        "events",
        "Append-only log of what happened to runs, chunks and single files, and of who did what.",
    )
    _set_run_states("running, finished, interrupted, failed, rebuilt")
    op.alter_column(
        "ingest_runs",
        "state",
        comment="running, finished, interrupted (by the user; what was packed is committed), failed, or rebuilt (from "
        "the journals of the stores, which do not have its end, its sources and its counts).",
    )


def _set_run_states(states: str) -> None:
    names = ", ".join(f"'{state}'" for state in states.split(", "))
    op.drop_constraint("ingest_runs_state_check", "ingest_runs")
    op.create_check_constraint(op.f("ingest_runs_state_check"), "ingest_runs", f"state IN ({names})")


def downgrade() -> None:
    """Drop the views, tables and columns, for development."""
    op.execute("DROP SCHEMA IF EXISTS cafcat_ops CASCADE")
    op.drop_table("folder_deltas")
    op.drop_table("folder_totals")
    op.execute("UPDATE ingest_runs SET state = 'finished' WHERE state = 'rebuilt'")
    _set_run_states("running, finished, interrupted, failed")
    op.create_table_comment("events", "Append-only log of what happened to runs, chunks and single files.")
    for column in ("actor", "options", "files_change", "bytes_change"):
        op.drop_column("events", column)
    op.drop_index("retired_locations_retired_at_idx", "retired_locations")
    for table in LOCATIONS:
        op.drop_column(table, "ingest_run_id")
        op.drop_column(table, "current_since")
