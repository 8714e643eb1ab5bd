"""Rules for SQL that Citus can run on tables distributed by the hash of file_path (docs/scale-citus.md)."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import sqlglot
from sqlglot import exp

__all__ = ["RULES", "SHARDED", "broken_rules"]

SHARDED = {"file_locations", "retired_locations"}
KEY = "file_path"
_SYSTEM_COLUMNS = {"ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"}
_WRAPPED = re.compile(r"\s*(?:DECLARE\s+\S+\s+(?:NO\s+SCROLL\s+)?CURSOR\s+FOR|COPY\s*\()", re.IGNORECASE)
_OTHER = re.compile(r"\s*(ANALYZE|COPY|LOCK|CREATE TEMPORARY TABLE \w+ \(LIKE)\b", re.IGNORECASE)


def broken_rules(statement: str) -> set[tuple[str, str]]:
    """Return the rules that a statement breaks, each with the command and the tables of the statement."""
    found: set[tuple[str, str]] = set()
    for part in parts(statement):
        if any(table in part for table in SHARDED) and not _OTHER.match(part):
            tree = sqlglot.parse_one(part.replace("OVERRIDING SYSTEM VALUE", ""), read="postgres")
            if reads_shards(tree):
                found |= {(rule, name_of(tree)) for rule, breaks in RULES.items() if breaks(tree)}
    return found


def parts(statement: str) -> Iterator[str]:
    """Yield the statements of one message, without the cursor or COPY around a query."""
    for text in statement.split(";"):
        head = _WRAPPED.match(text)
        if head is None:
            yield text
        elif head[0].rstrip().endswith("("):
            yield text[head.end() : text.rindex(") TO STDOUT")]
        else:
            yield text[head.end() :]


def tables_of(tree: exp.Expression) -> set[str]:
    return {table.name for table in tree.find_all(exp.Table)}


def name_of(tree: exp.Expression) -> str:
    """Return the command and the tables: "select asked, file_locations"."""
    defined = {cte.alias for cte in tree.find_all(exp.CTE)}
    kinds = {type(node).key for node in tree.find_all(exp.Insert, exp.Update, exp.Delete)} or {"select"}
    return f"{' '.join(sorted(kinds))} {', '.join(sorted(tables_of(tree) - defined - {''}))}"


def reads_shards(tree: exp.Expression) -> bool:
    return bool(tables_of(tree) & SHARDED)


def has_system_column(tree: exp.Expression) -> bool:
    return any(column.name in _SYSTEM_COLUMNS for column in tree.find_all(exp.Column))


def is_recursive(tree: exp.Expression) -> bool:
    return any(bool(clause.args.get("recursive")) and reads_shards(clause) for clause in tree.find_all(exp.With))


def locks_rows(tree: exp.Expression) -> bool:
    return any(select.args.get("locks") and reads_shards(select) for select in tree.find_all(exp.Select))


def is_correlated(tree: exp.Expression) -> bool:
    """Return True if a subquery on a sharded table depends on the row of a query around it."""
    return any(
        reads_shards(select) and _outer_names(select)
        for select in tree.find_all(exp.Select)
        if select.parent is not None
    )


def _outer_names(select: exp.Select) -> set[str]:
    """Return the names of tables with which the columns of a query are qualified, but which it does not read."""
    own = {
        node.alias_or_name for node in select.find_all(exp.Table, exp.Subquery, exp.CTE, exp.Lateral, exp.Unnest)
    }
    used = {column.table for column in select.find_all(exp.Column) if column.table}
    return used - own - {"excluded"}


def changes_the_key(tree: exp.Expression) -> bool:
    return any(
        isinstance(change.this, exp.Table)
        and change.this.name in SHARDED
        and any(KEY in str(value.this) for value in change.expressions)
        for change in tree.find_all(exp.Update)
    )


def conflicts_on_another_key(tree: exp.Expression) -> bool:
    for insert in tree.find_all(exp.Insert):
        conflict: Any = insert.args.get("conflict")
        if conflict and insert.find(exp.Table).name in SHARDED:  # type: ignore[union-attr]
            keys = [
                str(key.this if isinstance(key, exp.Ordered) else key) for key in conflict.args["conflict_keys"]
            ]
            if KEY not in keys:
                return True
    return False


RULES: dict[str, Callable[[exp.Expression], bool]] = {
    "system column": has_system_column,
    "recursive query": is_recursive,
    "lock of rows": locks_rows,
    "correlated subquery": is_correlated,
    "change of the key": changes_the_key,
    "conflict on another key": conflicts_on_another_key,
}
