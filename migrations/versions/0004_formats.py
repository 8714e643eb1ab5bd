"""Five formats: files that have to be decoded, and archives that are not cafcat's own.

Revision: 0004, after 0003. Columns are added at the end, without a value: no table is rewritten.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

LOCATIONS = ("file_locations", "retired_locations")
CONTENT_BYTES = "Size of the file where it has to be decoded; NULL where the bytes in the chunk are the file."
DECODING = "How the chunk's format makes the file of the bytes, in its own words; NULL where they are it."
BEFORE = "One past its last byte: the size is end_byte - start_byte."
END_BYTE = "One past its last byte: size is end_byte - start_byte, unless there is content_bytes."
COMMENTS = (
    (
        "data_bytes",
        sa.BigInteger(),
        True,
        "Size of the data section, dead bytes included.",
        "Bytes of the files in it, live or not; in CAF all before the index.",
    ),
    ("format", sa.Text(), False, "Format of the archive: caf.", "Format of the archive: caf, car, chunkio, ..."),
)
"""Of columns of chunks: name, type, whether it is nullable, before, after."""
ADOPTED_AT = "When it was adopted in place; NULL for cafcat's own. An adopted object is never deleted."


def upgrade() -> None:
    """Forward."""
    for table in LOCATIONS:
        op.add_column(table, sa.Column("content_bytes", sa.BigInteger(), nullable=True, comment=CONTENT_BYTES))
        op.add_column(table, sa.Column("decoding", sa.Text(), nullable=True, comment=DECODING))
        _comment(table, sa.Column("end_byte", sa.BigInteger(), nullable=False, comment=BEFORE), END_BYTE)
    adopted_at = sa.Column("adopted_at", sa.DateTime(timezone=True), nullable=True, comment=ADOPTED_AT)
    op.add_column("chunks", adopted_at)
    for name, kind, nullable, before, after in COMMENTS:
        _comment("chunks", sa.Column(name, kind, nullable=nullable, comment=before), after)


def downgrade() -> None:
    """Back, for development: what has to be decoded cannot be read afterwards."""
    for name, kind, nullable, before, after in COMMENTS:
        _comment("chunks", sa.Column(name, kind, nullable=nullable, comment=after), before)
    op.drop_column("chunks", "adopted_at")
    for table in LOCATIONS:
        _comment(table, sa.Column("end_byte", sa.BigInteger(), nullable=False, comment=END_BYTE), BEFORE)
        op.drop_column(table, "decoding")
        op.drop_column(table, "content_bytes")


def _comment(table: str, column: "sa.Column[object]", comment: str) -> None:
    op.alter_column(
        table,
        column.name,
        existing_type=column.type,
        comment=comment,
        existing_comment=column.comment,
        existing_nullable=bool(column.nullable),
    )
