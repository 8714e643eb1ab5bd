"""serve: pages of folders and videos in a headless Chromium. Skipped without the program `chromium`."""

import json
import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.e2e.conftest import Cafcat
from tests.worlds.browser import Page, browser_page
from tests.worlds.file_server import FileServer, serving
from tests.worlds.film import SECONDS, brightness_at, write_film
from tests.worlds.servers.services import Databases
from tests.worlds.waiting import wait_until

pytest.importorskip("uvicorn")

pytestmark = pytest.mark.slow  # the browser takes seconds to start

ODD = [
    " leading space.txt",
    "#hash.txt",
    "%41%2F.txt",
    "&amp;.txt",
    "+plus.txt",
    "..dots.txt",
    "<i>tag.txt",
    "a\\b.txt",
    "javascript:alert(1).txt",
    "line\nbreak.txt",
    "query?a=b&c.txt",
    'quote\'s "name".txt',
    "semi;colon.txt",
    "é 日本.txt",
    "x" * 150 + ".txt",
    "\x1b[31mred.txt",
]
PAGE = '<!doctype html><title>Film</title><video src="film.webm" preload="metadata" muted></video>'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, databases: Databases) -> Iterator[FileServer]:
    with databases.fresh(databases.template()) as url:
        cafcat = Cafcat(tmp_path_factory.mktemp("served"), url)
        tree = cafcat.folder / "tree"
        for folder in ("odd", "many", "sub folder"):
            (tree / folder).mkdir(parents=True)
        for number, name in enumerate(ODD):
            (tree / "odd" / name).write_text(f"content {number}")
        for number in range(1001):
            (tree / "many" / f"{number:04}.txt").write_text(f"{number}")
        (tree / "sub folder" / "file").touch()
        (tree / "large.bin").write_bytes(bytes(1_234_567))
        (tree / "film.html").write_text(PAGE)
        cafcat("ingest", "tree")
        with serving(cafcat, cafcat.folder / "log") as server:
            yield server


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser_page(tmp_path_factory.mktemp("browser")) as page:
        yield page


def link(name: str) -> str:
    """Return an expression of JavaScript for the link with this text."""
    return f"[...document.links].find(link => link.textContent === {json.dumps(name)})"


def names(page: Page) -> list[str]:
    """Return the texts of all links of a folder page, except the link to the folder above."""
    return list(page.run("[...document.links].map(link => link.textContent)"))[1:]


def test_a_folder_is_shown_and_its_links_lead_on(server: FileServer, page: Page) -> None:
    page.open(f"{server.url}/files/tree/")
    assert page.run("document.title") == "/tree/"
    assert names(page) == ["film.html", "large.bin", "many/", "odd/", "sub folder/"]
    row = page.run(f"{link('large.bin')}.closest('tr').innerText")
    assert "1.2 MB" in row
    page.click(link("odd/"))
    page.wait("document.title === '/tree/odd/'")
    page.click(link("../"))
    page.wait("document.title === '/tree/'")


@pytest.mark.parametrize("number", range(len(ODD)))
def test_a_click_on_a_name_opens_the_file(server: FileServer, page: Page, number: int) -> None:
    page.open(f"{server.url}/files/tree/odd/")
    page.click(link(ODD[number]))
    page.wait("document.contentType === 'text/plain' && document.readyState === 'complete'")
    assert page.run("document.body.innerText") == f"content {number}"
    assert page.run("location.href") == f"{server.url}/files/tree/odd/{quote(ODD[number])}"
    assert server.logged(f"/files/tree/odd/{ODD[number]}")["status"] == 200


def test_the_odd_names_are_shown_as_they_are(server: FileServer, page: Page) -> None:
    page.open(f"{server.url}/files/tree/odd/")
    assert names(page) == sorted(ODD)
    assert page.run("document.querySelectorAll('i, script, img').length") == 0


def test_a_large_folder_has_a_link_to_its_next_page(server: FileServer, page: Page) -> None:
    page.open(f"{server.url}/files/tree/many/")
    assert len(names(page)) == 1001  # a thousand names, and the link
    page.click("document.querySelector('a[rel=next]')")
    page.wait("location.search !== '' && document.readyState === 'complete'")
    assert names(page) == ["1000.txt"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_follows_the_color_scheme(server: FileServer, page: Page, scheme: str) -> None:
    page.prefer(scheme)
    page.open(f"{server.url}/files/tree/")
    back = lightness(page, "document.documentElement", "backgroundColor")
    assert (back < 0.1) if scheme == "dark" else (back > 0.9)
    for element in ("document.querySelector('h1')", "document.links[1]", "document.querySelector('td.n')"):
        light, dark = sorted([back, lightness(page, element, "color")], reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, element  # the contrast that WCAG 2 asks for


def lightness(page: Page, element: str, property: str) -> float:
    """Return the relative luminance of a color of an element, as WCAG 2 defines it."""
    color = page.run(f"getComputedStyle({element}).{property}")
    found = re.fullmatch(r"rgb\((\d+), (\d+), (\d+)\)", color)
    assert found, color
    parts = [int(text) / 255 for text in found.groups()]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("width", [320, 360, 768, 1280])
def test_the_page_fits_into_narrow_and_wide_windows(server: FileServer, page: Page, width: int) -> None:
    page.resize(width, 640)
    for folder in ("", "odd/", "many/"):
        page.open(f"{server.url}/files/tree/{folder}")
        assert page.run("innerWidth") == width
        assert page.run("document.documentElement.scrollWidth") <= width


@pytest.fixture(scope="module")
def film_server(tmp_path_factory: pytest.TempPathFactory, databases: Databases) -> Iterator[FileServer]:
    with databases.fresh(databases.template()) as url:
        cafcat = Cafcat(tmp_path_factory.mktemp("film"), url)
        (cafcat.folder / "tree").mkdir()
        write_film(cafcat.folder / "tree" / "film.webm")
        (cafcat.folder / "tree" / "film.html").write_text(PAGE)
        cafcat("ingest", "tree")
        with serving(cafcat, cafcat.folder / "log") as server:
            yield server


@pytest.mark.parametrize("document", ["film.html", "film.webm"])
def test_a_video_is_seeked_by_ranges(film_server: FileServer, page: Page, document: str) -> None:
    """The last second is shown after a request that begins behind the middle of the file."""
    page.events.clear()
    page.open(f"{film_server.url}/files/tree/{document}")
    page.wait("document.querySelector('video').readyState >= 1")
    page.run("document.querySelector('video').pause()")
    page.wait("document.querySelector('video').networkState === HTMLMediaElement.NETWORK_IDLE")
    place = SECONDS - 0.5
    assert page.run(SEEK % place) == place
    if document == "film.webm":  # an archived page must not read what it shows: it is sandboxed
        assert abs(page.run(BRIGHTNESS) - shown(brightness_at(SECONDS - 1))) <= 3
    size = film_server.request("/files/tree/film.webm", method="HEAD").headers["content-length"]
    answers = [answer["response"] for answer in page.seen("Network.responseReceived")]
    ranges = [
        re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", lower(answer["headers"])["content-range"])
        for answer in answers
        if answer["url"].endswith("/film.webm") and answer["status"] == 206
    ]
    starts = [int(found[1]) for found in ranges if found and found[3] == size]
    assert max(starts) > int(size) / 2, ranges
    end = int(size) - max(starts)
    wait_until(lambda: (206, end) in [(line["status"], line["size_bytes"]) for line in film_server.lines()])


SEEK = """
new Promise((done, fail) => {
    const video = document.querySelector("video");
    video.onseeked = () => done(video.currentTime);
    video.onerror = () => fail(video.error.message);
    video.currentTime = %s;
})
"""
BRIGHTNESS = """
(() => {
    const canvas = document.createElement("canvas"), video = document.querySelector("video");
    canvas.width = video.videoWidth;
    canvas.height = video.videoHeight;
    const picture = canvas.getContext("2d");
    picture.drawImage(video, 0, 0);
    return picture.getImageData(canvas.width - 20, 160, 1, 1).data[1];
})()
"""


def shown(luma: int) -> float:
    """Return the brightness from 0 to 255 of a picture's luma, which has 16 for black and 235 for white."""
    return (luma - 16) * 255 / 219


def lower(headers: dict[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
