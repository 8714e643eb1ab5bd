"""Create the BRIN index on chunks again, with several intervals for each range of pages, and summarized soon.

Revision: 0016, after 0015. The new index finds the files of a chunk also after others were replaced: their rows fill
pages of removed rows, and then one interval has nearly all chunks. This reads the table of files once, and other
commands cannot write meanwhile.
"""

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

# An unfinished change of the layout has a second table. Only indexes of partitions have pages_per_range.
_CREATE_AGAIN = """
DO $$
DECLARE
    files record;
    pages text;
BEGIN
    FOR files IN SELECT oid, relname, relkind FROM pg_class
        WHERE oid IN (to_regclass('file_locations'), to_regclass('file_locations_new'))
    LOOP
        pages := CASE WHEN files.relkind = 'p' THEN ', pages_per_range = 32' ELSE '' END;
        EXECUTE format('DROP INDEX %I', files.relname || '_caf_file_id_idx');
        EXECUTE format(
            'CREATE INDEX %I ON %I USING brin (caf_file_id int8_minmax_multi_ops) WITH (autosummarize = on%s)',
            files.relname || '_caf_file_id_idx', files.relname, pages);
    END LOOP;
END $$
"""


def upgrade() -> None:
    """Create the index again, in the layout that the table has."""
    op.execute(_CREATE_AGAIN)
