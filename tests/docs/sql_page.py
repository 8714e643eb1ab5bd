"""The cookbook of docs/sql.md: `python -m tests.docs.sql_page` writes it from the queries of `cafcat query`."""

from pathlib import Path
from textwrap import fill

from cafcat.catalog.named_queries import NamedQuery, named_queries

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"
BEGIN, END = "<!-- cookbook -->\n", "<!-- end of the cookbook -->\n"

SECTIONS = {
    "Files": [
        "where-is",
        "history",
        "largest-files",
        "duplicates",
        "duplicate-bytes",
        "same-content",
        "removed",
        "removed-total",
        "etags",
    ],
    "Folders and growth": ["folder-size", "largest-folders", "growth"],
    "Ingests": ["runs", "files-of-run", "ended-by-run", "failed-files", "changes", "listings", "shards"],
    "Chunks and stores": [
        "files-of-chunk",
        "lost-with",
        "lost-with-store",
        "single-copy",
        "dead-space",
        "without-files",
        "stores",
        "copies",
        "copies-in",
        "formats",
        "adopted",
        "database-size",
    ],
    "Verification": ["unverified", "not-verified-for", "damaged", "damaged-files", "verify-runs"],
    "Operations": ["writers", "leftovers", "journal-behind", "backups", "commands", "removals"],
    "Logs": ["logs"],
}


def cookbook() -> str:
    queries = named_queries()
    parts = []
    for title, names in SECTIONS.items():
        parts.append(f"### {title}\n\n" + "\n".join(_entry(queries[name]) for name in names))
    return "\n".join(parts)


def _entry(query: NamedQuery) -> str:
    arguments = "".join(f" {_shell(parameter.example)}" for parameter in query.parameters)
    notes = f" {query.notes}" if query.notes else ""
    heading = fill(f"**{query.question}** `cafcat query {query.name}{arguments}`{notes}", 120)
    return f"{heading}\n\n```sql\n{query.example()};\n```\n"


def _shell(value: str) -> str:
    return value or "''"


def page_with(text: str) -> str:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page_with(cookbook()))
