"""python -m tests.console.screenshots FOLDER: pictures of the console, light and dark, narrow and wide."""

import argparse
import contextlib
import shutil
import tempfile
from pathlib import Path

import cafcat
from cafcat.embedded.roles import SUPERUSER
from cafcat.serve.s3.options import S3Options
from tests.console.browser import chromium, served
from tests.console.world import fill, pages
from tests.worlds.servers.services import Databases, temporary_server
from tests.worlds.size_world import SizeWorld

SIZES = {"narrow": (360, 740), "wide": (1280, 800)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.console.screenshots", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder for the pictures")
    parser.add_argument("--only", nargs="+", help="names of pages, such as overview and chunk")
    parser.add_argument(
        "--files", type=int, help="0: an empty catalog; else so many more files than in the examples"
    )
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    name = Path(tempfile.gettempdir()) / "archive"  # is in the pictures
    name.mkdir()
    with temporary_server() as server, contextlib.ExitStack() as cleanup:
        cleanup.callback(shutil.rmtree, name)
        conninfo = server.conninfo("postgres", SUPERUSER)
        with contextlib.closing(Databases(conninfo)) as databases, databases.fresh(databases.template()) as url:
            take_all(url, name, options.folder, options.only, options.files)


def take_all(database_url: str, folder: Path, target: Path, only: list[str] | None, files: int | None) -> None:
    """Fill a catalog, and take the pictures."""
    home, store = folder / "home", (folder / "store").as_uri()
    with cafcat.open(database_url=database_url, home=home, store=store) as repository:
        if files != 0:
            fill(repository, folder)
        if files:
            SizeWorld(folder, database_url).grow(files)
        public = S3Options(public=(".",))
        with served(repository, s3=public) as root, chromium() as browser:
            for scheme in ("light", "dark"):
                for size, (width, height) in SIZES.items():
                    viewport = {"width": width, "height": height}
                    with browser.new_context(color_scheme=scheme, viewport=viewport) as tab:
                        page = tab.new_page()
                        for name, url in (pages(repository) | {"login": "login"}).items():
                            if only is None or name in only:
                                page.goto(root + url)
                                page.screenshot(path=target / f"{name}-{scheme}-{size}.png")


if __name__ == "__main__":
    main()
