"""Add the number of files that an ingest removed, and the removals that undelete took back.

Revision: 0011, after 0010. The column has a default, so no row is rewritten. The view `cafcat_ops.runs` gains the
column after the migration (migrations/env.py). Adoptions of archives are runs from this version on. Of a file that was
undeleted before this version, the time before its removal is not known.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column and the table, and mention adoptions in comments."""
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
    op.create_table(
        "restored_locations",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False, comment="Order of restoration."),
        *_location_columns(),
        _time("removed_at", "When the file was removed."),
        _time(
            "restored_at", "When undelete brought the file back.", server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("removed_by_run_id", sa.BigInteger(), comment="Run that removed it with --delete; NULL for rm."),
        sa.Column("file_path", sa.Text(collation="C"), nullable=False, comment="Path of the file."),
        *_further_columns(),
        sa.PrimaryKeyConstraint("id", name="restored_locations_pkey"),
        comment="A removal that undelete took back: since when, and until when, the file was current before.",
    )
    op.create_index("restored_locations_file_path_idx", "restored_locations", ["file_path"])
    op.create_index("restored_locations_removed_at_idx", "restored_locations", ["removed_at"])


def _time(name: str, comment: str, **options: Any) -> sa.Column:
    return sa.Column(name, sa.DateTime(timezone=True), comment=comment, **options)


def _location_columns() -> list[sa.Column]:
    return [
        sa.Column(
            "caf_file_id", sa.BigInteger(), nullable=False, comment="The chunk: chunks.id. See docs/decisions/0003."
        ),
        sa.Column("start_byte", sa.BigInteger(), nullable=False, comment="First byte of the file in the chunk."),
        sa.Column(
            "end_byte",
            sa.BigInteger(),
            nullable=False,
            comment="One past its last byte: size is end_byte - start_byte, unless there is content_bytes.",
        ),
        sa.Column("crc32c", sa.BigInteger(), nullable=False, comment="CRC-32C (Castagnoli) of the file, unsigned."),
        _time(
            "modified_at", "Modification time at the source, cut to microseconds; NULL where the source has none."
        ),
    ]


def _further_columns() -> list[sa.Column]:
    return [
        sa.Column(
            "source_etag",
            sa.Text(),
            comment="Entity tag of the file at its source, without quotes; NULL where the source has none.",
        ),
        sa.Column(
            "content_bytes",
            sa.BigInteger(),
            comment="Size of the file where it has to be decoded; NULL where the bytes in the chunk are the file.",
        ),
        sa.Column(
            "decoding",
            sa.Text(),
            comment="How the chunk's format makes the file of the bytes, in its own words; NULL where they are it.",
        ),
        sa.Column(
            "source_id",
            sa.Integer(),
            comment="Source that the file was read from: sources.id. NULL if unknown; then size and time decide "
            "whether it changed.",
        ),
        sa.Column(
            "ingest_run_id",
            sa.BigInteger(),
            comment="Run that brought the file, if that is not chunks.run_id of its chunk: repack and repair move "
            "files to chunks without a run. The view files in cafcat_ops has the run of every file.",
        ),
        _time(
            "current_since",
            "Since when the path has this content, if that is not chunks.committed_at of its chunk: the file was moved "
            "or undeleted since then.",
        ),
    ]
