"""Add rows for stores, a UUID for the catalog, and the source of each file.

Revision: 0005, after 0004. `chunks`, `chunk_copies` and `backups` keep their column `store`. It becomes a foreign
key to `stores.url` with ON UPDATE CASCADE, so that one UPDATE of `stores` moves a whole store (decision 0023). New
columns are added at the end with a constant default or NULL, so PostgreSQL rewrites no table.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

WITH_STORE = ("chunks", "chunk_copies", "backups")
LOCATIONS = ("file_locations", "retired_locations")
SOURCE_ID = (
    "Source that the file was read from: sources.id. NULL if unknown; then size and time decide whether it changed."
)
FILE_COUNT = (
    "Number of files that the finding concerns, file_path being the first; 0 if the finding concerns no file."
)
IS_LIVE = "True if a live file needs the damaged bytes; false if only replaced or removed files do, or none."
RETIRED_AT = (
    "When a migration of the store replaced this copy as the place to read from; prune removes the copy later."
)

FILL_STORES = """
INSERT INTO stores (url)
SELECT store FROM chunks UNION SELECT store FROM chunk_copies UNION SELECT store FROM backups
UNION SELECT unnest(unwritten) FROM journal WHERE unwritten <> '{}' ORDER BY 1
"""


def upgrade() -> None:
    """Add the tables and columns, and insert the rows of stores."""
    _create_catalog_identity()
    _create_stores()
    _create_sources()
    for table in LOCATIONS:
        op.add_column(table, sa.Column("source_id", sa.Integer(), nullable=True, comment=SOURCE_ID))
    op.add_column(
        "findings",
        sa.Column("file_count", sa.BigInteger(), nullable=False, server_default=sa.text("0"), comment=FILE_COUNT),
    )
    op.add_column(
        "findings",
        sa.Column("is_live", sa.Boolean(), nullable=False, server_default=sa.text("true"), comment=IS_LIVE),
    )
    op.add_column(
        "chunk_copies",
        sa.Column("retired_at", sa.DateTime(timezone=True), nullable=True, comment=RETIRED_AT),
    )


def downgrade() -> None:
    """Drop the tables and columns, for development.

    Names of stores, the UUID of the catalog and the sources of files are lost.
    """
    op.drop_column("chunk_copies", "retired_at")
    op.drop_column("findings", "is_live")
    op.drop_column("findings", "file_count")
    for table in LOCATIONS:
        op.drop_column(table, "source_id")
    for table in WITH_STORE:
        op.drop_constraint(f"{table}_store_fkey", table)
    for table in ("sources", "stores", "catalog_identity"):
        op.drop_table(table)


def _create_catalog_identity() -> None:
    op.create_table(
        "catalog_identity",
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            nullable=False,
            server_default=sa.text("now()"),
            comment="When the catalog was created.",
        ),
        sa.Column(
            "uuid",
            sa.Uuid(),
            nullable=False,
            server_default=sa.text("gen_random_uuid()"),
            comment="Identity of the catalog: the marker object of each store names the catalogs that write there.",
        ),
        sa.Column(
            "only_row",
            sa.Boolean(),
            nullable=False,
            server_default=sa.text("true"),
            comment="Always true: the primary key allows one row only.",
        ),
        sa.Column(
            "home",
            sa.Text(),
            comment="URL of CAFCAT_HOME at the last use, with the embedded database; else NULL.",
        ),
        sa.CheckConstraint("only_row", name="only_row"),
        sa.PrimaryKeyConstraint("only_row", name="catalog_identity_pkey"),
        comment="Identity of this catalog: one row.",
    )
    op.execute("INSERT INTO catalog_identity DEFAULT VALUES")


def _create_stores() -> None:
    op.create_table(
        "stores",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False, comment="Number of the store."),
        sa.Column(
            "added_at",
            sa.DateTime(timezone=True),
            nullable=False,
            server_default=sa.text("now()"),
            comment="When the catalog first used the store.",
        ),
        sa.Column("uuid", sa.Uuid(), comment="Identity in the store's marker object; NULL while it has none."),
        sa.Column(
            "url",
            sa.Text(),
            nullable=False,
            comment="URL of the store: chunks.store, chunk_copies.store and backups.store refer to it.",
        ),
        sa.Column("name", sa.Text(), comment="Short name of the store; NULL if nobody has named it."),
        sa.Column(
            "home_path",
            sa.Text(),
            comment="What follows the home in url, for a store inside the home; NULL for every other store.",
        ),
        sa.Column(
            "checks",
            JSONB(),
            comment="Which of the server's answers were found to be wrong or missing; NULL if not tried.",
        ),
        sa.PrimaryKeyConstraint("id", name="stores_pkey"),
        sa.UniqueConstraint("url", name="stores_url_key"),
        sa.UniqueConstraint("name", name="stores_name_key"),
        sa.UniqueConstraint("uuid", name="stores_uuid_key"),
        comment="Folders and buckets that hold chunks, copies, backups or adopted archives.",
    )
    op.execute(FILL_STORES)
    for table in WITH_STORE:
        op.create_foreign_key(f"{table}_store_fkey", table, "stores", ["store"], ["url"], onupdate="CASCADE")


def _create_sources() -> None:
    op.create_table(
        "sources",
        sa.Column("id", sa.Integer(), sa.Identity(always=True), nullable=False, comment="Number of the source."),
        sa.Column(
            "added_at",
            sa.DateTime(timezone=True),
            nullable=False,
            server_default=sa.text("now()"),
            comment="When the catalog first met the source.",
        ),
        sa.Column(
            "url",
            sa.Text(collation="C"),
            nullable=False,
            comment="Folder, bucket or server that the names of files are relative to.",
        ),
        sa.PrimaryKeyConstraint("id", name="sources_pkey"),
        sa.UniqueConstraint("url", name="sources_url_key"),
        comment="Roots that files were ingested from.",
    )
