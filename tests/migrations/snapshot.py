"""migrations/schema.sql: the schema as pg_dump prints it, without what differs between servers.

`python -m tests.migrations.snapshot` writes the file again from the migrations. A test compares it
with the migrations.
"""

import re
import subprocess
import tempfile
from pathlib import Path

from cafcat.catalog.schema import upgrade
from cafcat.embedded.server import EmbeddedServer

SNAPSHOT = Path(__file__).parents[2] / "migrations" / "schema.sql"
HEADER = "-- The schema at the newest migration, for reading. Written by `make schema`; a test keeps it true.\n\n"

_NOISE = re.compile(r"^(--.*|SET .*|SELECT pg_catalog\.set_config.*|\\(un)?restrict .*)$")


def dump(url: str, pg_dump: Path) -> str:
    """The schema of a database, normalized."""
    # cafcat/catalog/ops_views.sql has the views.
    command = [pg_dump, "--schema-only", "--no-owner", "--no-privileges", "--exclude-schema=cafcat_ops"]
    command += ["--dbname", url]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = [line for line in text.splitlines() if not _NOISE.match(line)]
    return HEADER + re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = EmbeddedServer(Path(folder) / "postgres")
        server.connect().close()
        try:
            upgrade(server.url())
            SNAPSHOT.write_text(dump(server.url(), server.programs / "pg_dump"))
        finally:
            server.stop()


if __name__ == "__main__":
    main()
