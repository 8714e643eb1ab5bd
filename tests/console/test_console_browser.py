"""The console in a headless Chromium: all pages of an empty catalog and of one with a million files.

They are seen narrow and wide, light and dark, with and without JavaScript.

Skipped without the program `chromium`.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

import cafcat
from cafcat.serve.s3.keys import add_key
from cafcat.serve.s3.options import S3Options
from tests.console.browser import chromium, served
from tests.console.world import fill, pages
from tests.worlds.servers.services import Databases
from tests.worlds.size_world import SizeWorld
from tests.worlds.waiting import wait_until

pytest.importorskip("uvicorn")
pytest.importorskip("axe_playwright_python")

pytestmark = pytest.mark.slow  # the browser takes seconds to start

STANDARDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
PUBLIC = S3Options(public=(".",))


class Site(NamedTuple):
    url: str
    pages: dict[str, str]
    repository: cafcat.Repository


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module", params=["empty", "million"])
def site(
    request: pytest.FixtureRequest, databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    with (
        databases.fresh(databases.template()) as url,
        cafcat.open(database_url=url, home=folder / "home", store=(folder / "store").as_uri()) as repository,
    ):
        if request.param == "million":
            fill(repository, folder)
            SizeWorld(folder, url).grow(1_000_000)
        with served(repository, s3=PUBLIC) as root:
            yield Site(root, seen(repository), repository)


@pytest.fixture(scope="module")
def filled(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("filled")
    with (
        databases.fresh(databases.template()) as url,
        cafcat.open(database_url=url, home=folder / "home", store=(folder / "store").as_uri()) as repository,
    ):
        fill(repository, folder)
        with served(repository, s3=S3Options(key_seconds=0.0)) as root:
            yield Site(root, pages(repository), repository)


def seen(repository: cafcat.Repository) -> dict[str, str]:
    """Return the pages to look at. The views share a template, so some of them are enough."""
    few = ("view-files", "view-duplicates", "view-lost_with", "view-sorted", "view-history")
    found = {name: url for name, url in pages(repository).items() if not name.startswith("view-") or name in few}
    return found | {"login": "login"}


def context(browser: Any, scheme: str = "light", width: int = 1280, script: bool = True) -> Any:
    return browser.new_context(
        color_scheme=scheme, viewport={"width": width, "height": 800}, java_script_enabled=script
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1600])
def test_every_page_is_accessible_and_fits(site: Site, browser: Any, scheme: str, width: int) -> None:
    from axe_playwright_python.sync_playwright import Axe

    axe = Axe()
    with context(browser, scheme, width) as tab:
        page = tab.new_page()
        messages: list[str] = []
        page.on("console", lambda message: messages.append(f"{page.url}: {message.text}"))
        page.on("pageerror", lambda error: messages.append(f"{page.url}: {error}"))
        for name, url in site.pages.items():
            answer = page.goto(site.url + url)
            assert answer.status == 200, name
            found = axe.run(page, options={"runOnly": {"type": "tag", "values": STANDARDS}})
            assert found.violations_count == 0, f"{name}: {found.generate_report()}"
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert messages == []


def test_every_page_works_without_javascript(site: Site, browser: Any) -> None:
    with context(browser, script=False) as tab:
        page = tab.new_page()
        for url in site.pages.values():
            assert page.goto(site.url + url).status == 200
            assert page.locator("h1").count() == 1
        page.goto(site.url + "overview")
        page.get_by_role("link", name="Browse").click()
        assert page.url == site.url + "browse"
        page.get_by_role("button", name="Dark").click()
        assert page.url == site.url + "browse"
        assert page.locator("html[data-theme=dark]").count() == 1


def test_a_visitor_logs_in_and_looks_around_by_keyboard(filled: Site, browser: Any) -> None:
    key = add_key(filled.repository.session)
    with context(browser) as tab:
        page = tab.new_page()
        page.goto(filled.url + "browse")
        assert page.title() == "Log in · cafcat"
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        page.keyboard.type(key.access_key_id)
        page.keyboard.press("Tab")
        page.keyboard.type(key.secret_access_key)
        page.keyboard.press("Enter")
        page.wait_for_url("**/browse")
        for text in ("damaged/", "one.txt"):
            for _ in range(40):
                page.keyboard.press("Tab")
                if page.evaluate("document.activeElement.textContent") == text:
                    break
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
            assert outline == "3px", "the focus is seen"
            page.keyboard.press("Enter")
            until(page, f"document.title.startsWith({text.rstrip('/')!r})")
        assert page.locator("h1").inner_text() == "one.txt"


def test_htmx_replaces_pages_without_loading_them_again(filled: Site, browser: Any) -> None:
    with context(browser) as tab:
        page = tab.new_page()
        log_in(page, filled)
        page.evaluate("window.kept = true")
        for title in ("Browse", "Search", "Chunks", "Runs", "Findings", "Stores", "SQL", "Overview"):
            page.get_by_role("navigation", name="Pages").get_by_role("link", name=title).click()
            until(page, f"document.title === '{title} · cafcat'")
            assert page.evaluate("window.kept"), title
        page.goto(filled.url + "browse?path=none/")
        page.evaluate("window.kept = true")
        page.get_by_role("link", name="Back to the first page").click()
        until(page, "document.title === 'Overview · cafcat'")
        assert page.evaluate("window.kept")
        page.go_back()
        until(page, "document.title.startsWith('Not found')")


def test_a_running_ingest_refreshes_itself(filled: Site, browser: Any) -> None:
    runs = filled.repository.session.catalog.runs
    run = runs.begin_run(sources=["x"], options={}, version="1")
    with context(browser) as tab:
        page = tab.new_page()
        log_in(page, filled)
        page.goto(f"{filled.url}run?id={run}")
        assert page.locator("#live .state").inner_text() == "running"
        runs.finish_run(run, cafcat.model.RunState.FINISHED, cafcat.model.IngestReport().as_counts())
        until(page, "document.querySelector('#live .state').textContent === 'finished'")


def test_an_archived_page_runs_as_another_site(filled: Site, browser: Any) -> None:
    """Its scripts run below /files/, without cookies and answers of the console; below /-/raw they do not."""
    with context(browser) as tab:
        page = tab.new_page()
        log_in(page, filled)
        page.goto(filled.url.replace("/-/", "/files/photos/page.html"))
        assert page.title() == "ran"
        assert page.evaluate("self.origin") == "null"
        read = "fetch('/-/overview', {credentials: 'include'}).then(() => 'read', () => 'refused')"
        assert page.evaluate(read) == "refused"
        page.goto(filled.url + "raw?path=photos/page.html")
        assert page.locator("h1").inner_text() == "Archived"
        assert page.title() != "ran"


def test_previews_are_shown(filled: Site, browser: Any) -> None:
    with context(browser) as tab:
        page = tab.new_page()
        log_in(page, filled)
        page.goto(filled.url + "file?path=photos/cat.png")
        assert page.evaluate("document.querySelector('img.preview').naturalWidth") == 64
        page.goto(filled.url + "file?path=photos/sound.wav")
        until(page, "document.querySelector('audio').duration === 0.5")


def until(page: Any, condition: str) -> None:
    """Wait until an expression is true. Playwright's own wait_for_function needs eval, which the pages forbid."""
    from playwright.sync_api import Error

    def is_true() -> bool:
        try:
            return bool(page.evaluate(condition))
        except Error as error:
            if "Execution context was destroyed" in error.message:  # the browser is loading the next page
                return False
            raise

    wait_until(is_true)


def log_in(page: Any, site: Site) -> None:
    key = add_key(site.repository.session)
    page.goto(site.url + "login")
    page.get_by_label("Access key").fill(key.access_key_id)
    page.get_by_label("Secret").fill(key.secret_access_key)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/overview")
