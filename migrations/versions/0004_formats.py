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
ADOPTED_AT = "When it was adopted in place; NULL for cafcat's own. An adopted object is never deleted."


def upgrade() -> None:
    """Forward."""
    for table in LOCATIONS:
        op.add_column(table, sa.Column("content_bytes", sa.BigInteger(), nullable=True, comment=CONTENT_BYTES))
        op.add_column(table, sa.Column("decoding", sa.Text(), nullable=True, comment=DECODING))
        _comment_end_byte(table, END_BYTE, BEFORE)
    adopted_at = sa.Column("adopted_at", sa.DateTime(timezone=True), nullable=True, comment=ADOPTED_AT)
    op.add_column("chunks", adopted_at)


def downgrade() -> None:
    """Back, for development: what has to be decoded cannot be read afterwards."""
    op.drop_column("chunks", "adopted_at")
    for table in LOCATIONS:
        _comment_end_byte(table, BEFORE, END_BYTE)
        op.drop_column(table, "decoding")
        op.drop_column(table, "content_bytes")


def _comment_end_byte(table: str, comment: str, existing: str) -> None:
    op.alter_column(
        table,
        "end_byte",
        existing_type=sa.BigInteger(),
        comment=comment,
        existing_comment=existing,
        existing_nullable=False,
    )
