"""The views of cafcat_ops keep their promise: they only ever gain columns, and each column has a comment."""

from pathlib import Path

import psycopg

PROMISED = Path(__file__).with_name("ops_columns.txt")

COLUMNS = """
    SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), col_description(c.oid, a.attnum)
    FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
    WHERE c.relnamespace = 'cafcat_ops'::regnamespace AND a.attnum > 0 ORDER BY c.relname, a.attnum
"""
FUNCTIONS = """
    SELECT p.oid::regprocedure::text, pg_get_function_result(p.oid), obj_description(p.oid, 'pg_proc')
    FROM pg_proc AS p WHERE p.pronamespace = 'cafcat_ops'::regnamespace ORDER BY 1
"""


def test_views_and_functions_are_the_promised_ones(database_url: str) -> None:
    """A new column comes at the end of its view in the file. No line of the file is ever changed or removed."""
    with psycopg.connect(database_url) as connection:
        columns = [f"{view}.{name} {kind}" for view, name, kind, _ in connection.execute(COLUMNS).fetchall()]
        functions = [f"{name} -> {result}" for name, result, _ in connection.execute(FUNCTIONS).fetchall()]
    assert [*columns, *functions] == PROMISED.read_text().splitlines()


def test_everything_in_the_schema_has_a_comment(database_url: str) -> None:
    views = """
        SELECT relname, obj_description(oid, 'pg_class') FROM pg_class
        WHERE relnamespace = 'cafcat_ops'::regnamespace AND relkind = 'v'
    """
    with psycopg.connect(database_url) as connection:
        found = [row[-1] for query in (COLUMNS, FUNCTIONS, views) for row in connection.execute(query).fetchall()]
    assert len(found) > 100
    assert all(found)
