"""Add the keys with which programs read files through the S3 server.

Revision: 0006, after 0005. A new table: no other table changes.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "access_keys",
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            nullable=False,
            server_default=sa.text("now()"),
            comment="When the key was made.",
        ),
        sa.Column(
            "expires_at",
            sa.DateTime(timezone=True),
            comment="From when on the key is refused; NULL if it does not expire.",
        ),
        sa.Column(
            "revoked_at",
            sa.DateTime(timezone=True),
            comment="When the key was revoked; NULL if it was not.",
        ),
        sa.Column(
            "access_key_id",
            sa.Text(collation="C"),
            nullable=False,
            comment="Name of the key, which every request of its user has.",
        ),
        sa.Column(
            "prefix",
            sa.Text(collation="C"),
            nullable=False,
            comment="Folder of the catalog that the key can read, with a slash at its end; empty for all files.",
        ),
        sa.Column(
            "sealed_secret",
            sa.LargeBinary(),
            comment="The secret, encrypted with the sealing key, which the database does not have; NULL once revoked.",
        ),
        sa.CheckConstraint("(sealed_secret IS NULL) = (revoked_at IS NOT NULL)", name="sealed_secret"),
        sa.PrimaryKeyConstraint("access_key_id", name="access_keys_pkey"),
        comment="Keys with which programs read files through the S3 server.",
    )


def downgrade() -> None:
    """Drop the table, for development. The keys are lost."""
    op.drop_table("access_keys")
