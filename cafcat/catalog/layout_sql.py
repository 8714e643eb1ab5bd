"""The statements that change the layout of file_locations while the catalog is in use.

`file_locations_new` is the table in the new layout. Triggers on file_locations repeat each change there. Meanwhile
the existing rows are copied in batches of pages. `layout_change` has one row: the state of the change.
"""

from typing import Final

from cafcat.catalog.files.mapping import ALL_COLUMNS

__all__: list[str] = []

LOCK_KEY: Final = "1667327587, 8"
"""Advisory lock ("cafc", 8). A batch holds it alone; transactions that update or delete rows share it."""

CREATE_STATE: Final = """
CREATE TABLE layout_change (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row), partitions int NOT NULL, phase text NOT NULL,
    sources jsonb NOT NULL, source int NOT NULL DEFAULT 0, block bigint NOT NULL DEFAULT 0,
    rows_copied bigint NOT NULL DEFAULT 0, last_change xid8, started_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE layout_change IS 'State of an unfinished `cafcat db partition`, which drops the table at its end.';
COMMENT ON COLUMN layout_change.only_row IS 'Always true: the primary key allows one row only.';
COMMENT ON COLUMN layout_change.partitions IS 'Partitions of the new layout; 0 for a plain table.';
COMMENT ON COLUMN layout_change.phase IS 'copying, checking, switching or dropping.';
COMMENT ON COLUMN layout_change.sources IS 'Tables to copy: name, pages, and number of the file on disk.';
COMMENT ON COLUMN layout_change.source IS 'Index in sources of the table that is copied next.';
COMMENT ON COLUMN layout_change.block IS 'First page of that table that is not copied yet.';
COMMENT ON COLUMN layout_change.rows_copied IS 'Rows that batches have copied.';
COMMENT ON COLUMN layout_change.last_change IS 'Transaction of the last batch.';
COMMENT ON COLUMN layout_change.started_at IS 'When the change began.';
"""
# The tables whose pages are copied: file_locations, or its partitions. Pages that are added later are not copied:
# the triggers repeat their rows.
SOURCES: Final = """
SELECT coalesce(jsonb_agg(jsonb_build_object('table', c.oid::regclass::text,
                'blocks', pg_relation_size(c.oid) / current_setting('block_size')::bigint,
                'file', pg_relation_filenode(c.oid)) ORDER BY c.oid), '[]')
FROM pg_class AS c LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid
WHERE c.relkind = 'r' AND coalesce(i.inhparent, c.oid) = 'file_locations'::regclass
"""
SOURCE_NOW: Final = """
SELECT pg_relation_size(%(table)s::regclass) / current_setting('block_size')::bigint,
       pg_relation_filenode(%(table)s::regclass)
"""
# Without statistics, a row counts as 117 bytes, as measured with paths of 45 characters.
SIZES: Final = """
SELECT coalesce(sum(pg_relation_size(c.oid)), 0)::bigint, coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint,
       coalesce(sum(CASE WHEN c.reltuples > 0 THEN c.reltuples ELSE pg_relation_size(c.oid) / 117 END), 0)::bigint
FROM pg_class AS c LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid
WHERE c.relkind = 'r' AND coalesce(i.inhparent, c.oid) = 'file_locations'::regclass
"""
# What a user added to the table would be lost with it, or would keep it from being dropped.
OBSTACLES: Final = """
SELECT 'view ' || r.ev_class::regclass FROM pg_depend AS d JOIN pg_rewrite AS r ON r.oid = d.objid
WHERE d.classid = 'pg_rewrite'::regclass AND d.refobjid = 'file_locations'::regclass
    AND r.ev_class NOT IN (SELECT oid FROM pg_class WHERE relnamespace = to_regnamespace('cafcat_ops'))
UNION SELECT 'foreign key ' || conname FROM pg_constraint WHERE confrelid = 'file_locations'::regclass
UNION SELECT 'trigger ' || tgname FROM pg_trigger
WHERE tgrelid = 'file_locations'::regclass AND NOT tgisinternal AND tgname NOT LIKE 'mirror\\_%'
UNION SELECT 'index ' || indexrelid::regclass FROM pg_index WHERE indrelid = 'file_locations'::regclass
    AND indexrelid::regclass::text NOT IN ('file_locations_pkey', 'file_locations_caf_file_id_idx',
                                           'file_locations_ingest_run_id_idx', 'file_locations_current_since_idx')
UNION SELECT 'policy ' || polname FROM pg_policy WHERE polrelid = 'file_locations'::regclass
UNION SELECT 'publication ' || p.pubname FROM pg_publication_rel AS r JOIN pg_publication AS p ON p.oid = r.prpubid
WHERE r.prrelid = 'file_locations'::regclass
UNION SELECT 'permission on column ' || attname FROM pg_attribute
WHERE attrelid = 'file_locations'::regclass AND attacl IS NOT NULL
ORDER BY 1
"""
OWNER: Final = """
SELECT pg_get_userbyid(relowner)::text, pg_has_role(relowner, 'MEMBER') FROM pg_class
WHERE oid = 'file_locations'::regclass
"""

_COLUMN_LIST: Final = ALL_COLUMNS.split(", ")
_UPDATE: Final = ", ".join(f"{name} = excluded.{name}" for name in _COLUMN_LIST if name != "file_path")
# A plan that is made anew each time fits the present size of the table: hence EXECUTE. The settings leave no plan
# that reads the whole table for a few rows.
_SETTINGS: Final = "SET enable_seqscan = off SET jit = off"
_UPSERT: Final = (
    f"INSERT INTO {{schema}}.file_locations_new ({ALL_COLUMNS}) SELECT {ALL_COLUMNS} FROM added ORDER BY file_path "  # noqa: S608
    f"ON CONFLICT (file_path) DO UPDATE SET {_UPDATE}"
)
_DELETE: Final = (
    "DELETE FROM {schema}.file_locations_new WHERE file_path = ANY (ARRAY(SELECT file_path FROM removed{rest}))"
)
_FUNCTION: Final = (
    "CREATE FUNCTION {{schema}}.mirror_file_locations_{name}() RETURNS trigger LANGUAGE plpgsql {settings} "
    "AS $$ BEGIN {body} RETURN NULL; END $$;"
)
_BODIES: Final = {
    "lock": f"PERFORM pg_advisory_xact_lock_shared({LOCK_KEY});",
    "insert": f"EXECUTE $q${_UPSERT}$q$;",
    "update": f"EXECUTE $q${_DELETE.replace('{rest}', ' EXCEPT SELECT file_path FROM added')}$q$; "  # noqa: S608
    f"EXECUTE $q${_UPSERT}$q$;",
    "delete": f"EXECUTE $q${_DELETE.replace('{rest}', '')}$q$;",
    "refuse": "RAISE EXCEPTION 'file_locations cannot be truncated while its layout is changed';",
}
FUNCTIONS: Final = "".join(
    _FUNCTION.format(name=name, settings=_SETTINGS, body=body) for name, body in _BODIES.items()
)
"""Functions of the triggers; {schema} is the schema of the catalog, quoted."""
DROP_FUNCTIONS: Final = "; ".join(f"DROP FUNCTION IF EXISTS mirror_file_locations_{name}()" for name in _BODIES)

_TRIGGERS: Final = (
    ("lock", "BEFORE UPDATE OR DELETE", ""),
    ("refuse", "BEFORE TRUNCATE", ""),
    ("insert", "AFTER INSERT", "REFERENCING NEW TABLE AS added"),
    ("update", "AFTER UPDATE", "REFERENCING OLD TABLE AS removed NEW TABLE AS added"),
    ("delete", "AFTER DELETE", "REFERENCING OLD TABLE AS removed"),
)
TRIGGERS: Final = "; ".join(
    f"CREATE TRIGGER mirror_{name} {when} ON {{table}} {rows} FOR EACH STATEMENT "
    f"EXECUTE FUNCTION mirror_file_locations_{name}()"
    for name, when, rows in _TRIGGERS
)
"""Triggers of file_locations and each of its partitions: one of a partition fires for statements that name it."""
DROP_TRIGGERS: Final = "; ".join(f"DROP TRIGGER IF EXISTS mirror_{name} ON {{table}}" for name, _, _ in _TRIGGERS)

COPY_BATCH: Final = (
    f"INSERT INTO file_locations_new ({ALL_COLUMNS}) SELECT {ALL_COLUMNS} FROM ONLY {{table}} "  # noqa: S608
    "WHERE ctid >= '({low},0)' AND ctid < '({high},0)' ON CONFLICT (file_path) DO NOTHING"
)
STATE: Final = """
SELECT partitions, phase, sources, source, block, rows_copied, last_change::text FROM layout_change
"""
ADVANCE: Final = """
UPDATE layout_change SET sources = %(sources)s, source = %(source)s, block = %(block)s, phase = %(phase)s,
       rows_copied = rows_copied + %(rows)s, last_change = pg_current_xact_id()
"""
# Order does not matter for a sum, so no table is sorted.
CONTENTS: Final = (
    f"SELECT count(*), coalesce(sum(hash_record_extended(ROW({ALL_COLUMNS}), 0)::numeric), 0) FROM {{table}}"  # noqa: S608
)
# Sessions whose snapshot may not see all copied rows. They must not read the new table. The type of another role's
# session is hidden from roles without pg_read_all_stats.
OLDER_SNAPSHOTS: Final = """
SELECT pid, coalesce(nullif(application_name, ''), 'a program without a name') FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
    AND coalesce(backend_type, 'client backend') = 'client backend'
    AND backend_xmin IS NOT NULL AND age(backend_xmin) >= age(%s::xid8::xid)
ORDER BY xact_start LIMIT 3
"""
