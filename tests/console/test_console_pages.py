"""The pages of the console: what they show, and that nothing of the catalog becomes markup or a script."""

import csv
import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urljoin

import pytest

import cafcat
from cafcat.packed_files import PackedFiles
from cafcat.serve.console.app import Console
from tests.console.client import Answer, Client, console
from tests.console.world import HOSTILE, PICTURE, fill, pages
from tests.worlds.servers.services import Databases

pytest.importorskip("jinja2")


class World(NamedTuple):
    repository: cafcat.Repository
    client: Client
    folder: Path

    def page(self, url: str, status: int = 200) -> Answer:
        answer = self.client.get(f"/-/{url}")
        assert answer.status == status, answer.text
        return answer

    def console(self) -> PackedFiles:
        """Return the repository whose connection the pages use."""
        cells = self.client.app.__closure__ or ()  # type: ignore[attr-defined]
        [app] = [cell.cell_contents for cell in cells if isinstance(cell.cell_contents, Console)]
        return app._repository


@pytest.fixture(scope="module")
def world(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("console")
    with (
        databases.fresh(databases.template()) as url,
        cafcat.open(database_url=url, home=folder / "home", store=(folder / "store").as_uri()) as repository,
    ):
        fill(repository, folder)
        with console(repository, **public(".")) as client:
            yield World(repository, client, folder)


def public(*folders: str) -> dict[str, object]:
    from cafcat.serve.s3.options import S3Options

    return {"s3": S3Options(public=folders)}


def text_of(answer: Answer) -> str:
    """Return what a reader sees of a page."""
    without = re.sub(r"<(script|style|title)\b.*?</\1>|<[^>]*>", " ", answer.text, flags=re.DOTALL)
    return " ".join(html.unescape(without).replace("\u202f", " ").split())


def test_a_browser_is_led_to_the_console_and_a_program_to_the_files(world: World) -> None:
    answer = world.client.get("/")
    assert (answer.status, answer.headers["location"], answer.headers["vary"]) == (303, "./-/", "accept")
    assert world.client.follow(world.client.follow(answer)).url == "/-/overview"
    program = world.client.get("/", {"accept": "*/*"})
    assert (program.status, program.headers["location"]) == (308, "/files/")


def test_every_page_has_its_frame_and_no_inline_script_or_style(world: World) -> None:
    for name, url in pages(world.repository).items():
        answer = world.page(url)
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'self'; script-src 'self'; "), name
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert not re.search(r"<script(?![^>]* src=)|<style|<[^>]* (style|on[a-z]+)=", answer.text), name
        assert answer.text.count("<h1") == 1, name
        for part in ('<html lang="en"', '<main id="main"', 'href="#main"', "<title>", 'name="viewport"'):
            assert part in answer.text, (name, part)


def test_all_links_of_all_pages_lead_to_pages(world: World) -> None:
    """No page needs JavaScript: everything is reached by links and forms."""
    seen: set[str] = set()
    waiting = ["/-/overview"]
    while waiting:
        url = waiting.pop()
        for href in world.client.get(url).hrefs:
            target = urljoin(url, href)
            kind = target.partition("?")[0]
            if href.startswith("#") or target in seen or sum(one.startswith(kind) for one in seen) > 15:
                continue
            seen.add(target)
            answer = world.client.get(target)
            assert answer.status in (200, 206, 303), target
            if kind != "/-/raw":
                waiting.append(target)
    kinds = {url.partition("?")[0] for url in seen}
    assert {f"/-/{name.partition('?')[0]}" for name in pages(world.repository).values()} <= kinds


def test_the_overview_shows_totals_states_and_damage(world: World) -> None:
    shown = text_of(world.page("overview"))
    stats = world.repository.stats()
    assert f"Files {stats.files} " in shown
    assert f"Chunks {stats.chunks['committed']} " in shown
    assert "Latest findings about live files" in shown
    assert "damaged/two.txt" in shown
    assert "in the last 7 days" in shown
    assert world.page("overview").text.count('role="img" aria-label="') == 4


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_text_everywhere(world: World, name: str) -> None:
    folder = world.page("browse?path=photos/odd/")
    [link] = [
        href
        for href in folder.hrefs
        if href == f"file?path={quote('photos/odd/' + name, safe='/')}".replace("%20", "+")
    ]
    page = world.client.get(urljoin("/-/", link))
    assert page.status == 200
    shown = name.replace("\n", "\\n").replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    for answer in (folder, page):
        assert shown in html.unescape(answer.text)
        assert not re.search("<script>|<img src=x|\x1b|\u202e", answer.text)
    assert name.encode() == world.client.get(f"/-/raw?path={quote('photos/odd/' + name)}").body


def test_a_folder_is_shown_page_by_page(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cafcat.serve.console.pages.browse._ENTRIES", 50)
    found: list[str] = []
    answer = world.page("browse?path=photos/notes/")
    while True:
        found += re.findall(r">(\d{3}\.txt)</a>", answer.text)
        following = [href for href in answer.hrefs if "after=" in href]
        if not following:
            break
        answer = world.page(following[0])
    assert found == [f"{number:03}.txt" for number in range(120) if number // 10 != 4]


def test_a_file_shows_its_place_history_and_commands(world: World) -> None:
    answer = world.page("file?path=photos/notes/001.txt")
    location = world.repository.locate("photos/notes/001.txt")
    shown = text_of(answer)
    for part in (
        str(location.chunk),
        world.repository.object_of(location),
        f"{location.start_byte:,} to {location.end_byte:,}".replace(",", " "),
        f"{location.crc32c:08x}",
        "changed 1 changed 1",
        "cafcat get -- photos/notes/001.txt",
        f"cafcat verify --level data --chunk {location.chunk}",
        "replaced",
        (world.folder / "copies").as_uri(),
    ):
        assert part in shown, part


def test_a_removed_file_still_has_its_history(world: World) -> None:
    shown = text_of(world.page("file?path=photos/notes/041.txt"))
    assert "No file has this path now. It had one before." in shown
    assert "removed" in shown
    assert "Bring the file back cafcat undelete -- photos/notes/041.txt" in shown
    assert "cafcat undelete" not in text_of(world.page("file?path=none"))
    assert "cafcat undelete" not in text_of(world.page("file?path=photos/notes/001.txt"))


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("cat.png", '<img class="preview" src="raw?path=photos/cat.png" alt="The image cat.png"'),
        ("sound.wav", '<audio class="preview" controls preload="metadata" src="raw?path=photos/sound.wav"'),
        ("random.bin", "00000010  10 11 12 13"),
        ("empty", "The file is empty."),
        ("page.html", "&lt;script&gt;document.title"),
        ("drawing.svg", "&lt;script&gt;alert(1)"),
        ("long.txt", "These are the first 16.4 kB of 93.2 kB."),
    ],
)
def test_previews(world: World, name: str, part: str) -> None:
    assert part in world.page(f"file?path=photos/{name}").text


@pytest.mark.parametrize("name", ["page.html", "drawing.svg"])
def test_an_archived_page_never_has_the_rights_of_the_console(world: World, name: str) -> None:
    raw = world.client.get(f"/-/raw?path=photos/{name}").headers
    assert raw["content-security-policy"] == "default-src 'none'; style-src 'unsafe-inline'; sandbox"
    served = world.client.get(f"/files/photos/{name}").headers
    assert served["content-security-policy"].startswith("sandbox ")
    assert "allow-same-origin" not in served["content-security-policy"]
    assert raw["x-content-type-options"] == served["x-content-type-options"] == "nosniff"


def test_contents_have_ranges_and_names(world: World) -> None:
    answer = world.client.get("/-/raw?path=photos/cat.png", {"range": "bytes=1-3"})
    assert (answer.status, answer.body, answer.headers["content-type"]) == (206, PICTURE[1:4], "image/png")
    assert "attachment" in world.client.get("/-/raw?path=photos/cat.png&download=").headers["content-disposition"]
    for path in ("photos/", "photos", "none", "../x", ""):
        assert world.client.get(f"/-/raw?path={path}").status in (308, 400, 404), path


def test_the_map_of_a_chunk_is_to_scale(world: World) -> None:
    [chunk] = [chunk for chunk in world.repository.chunks() if chunk.file_count > 100]
    answer = world.page(f"chunk?uuid={chunk.uuid}")
    assert chunk.size_bytes is not None
    spans = world.repository.session.catalog.pages.rows(
        "SELECT start_byte, end_byte FROM retired_locations JOIN chunks AS c ON c.id = caf_file_id WHERE uuid = %s",
        [chunk.uuid],
    )
    first, last = min(row["start_byte"] for row in spans), max(row["end_byte"] for row in spans)
    drawn = re.findall(r'<rect class="dead" x="([\d.]+)" y="0" width="([\d.]+)" height="40"', answer.text)
    assert abs(float(drawn[0][0]) - 1000 * first / chunk.size_bytes) < 0.01
    assert abs(float(drawn[-1][0]) + float(drawn[-1][1]) - 1000 * last / chunk.size_bytes) < 1.01
    shown = text_of(answer)
    for part in ("chunk_committed", "Copies of the chunk", "Checks of the chunk", "photos/cat.png"):
        assert part in shown, part


def test_a_chunk_is_named_by_the_first_digits_of_its_uuid(world: World) -> None:
    chunk = str(world.repository.locate("damaged/one.txt").chunk)
    assert chunk in text_of(world.page(f"chunk?uuid={chunk[:8]}"))
    assert rows_of(world.page(f"view?name=lost_with&chunk={chunk[:8]}"))
    assert "at least its first 8 characters" in text_of(world.page(f"chunk?uuid={chunk[:7]}", 400))


def test_a_chunk_without_copies_shows_the_command_that_copies_it(world: World) -> None:
    chunk = world.repository.locate("damaged/one.txt").chunk
    assert "cafcat copy --all --to STORE" in text_of(world.page(f"chunk?uuid={chunk}"))


def test_checks_of_a_copy_name_its_store(world: World) -> None:
    chunk = world.repository.locate("photos/cat.png").chunk
    checks = world.page(f"chunk?uuid={chunk}").text.partition('id="checks"')[2]
    copies = (world.folder / "copies").as_uri()
    assert set(re.findall(r'copy in <span class="path">([^<]*)</span>', checks)) == {copies}
    assert "<td>the chunk</td>" in checks


def test_the_map_is_the_same_from_live_and_from_dead_files(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    [chunk] = [chunk for chunk in world.repository.chunks() if chunk.file_count > 100]
    url = f"chunk?uuid={chunk.uuid}"

    def drawn() -> list[str]:
        return re.findall(r'<rect class="dead"[^>]*>', world.page(url).text)

    exact = drawn()
    from cafcat.serve.console.pages import chunk as module

    number = chunk.file_count - chunk.live_file_count
    monkeypatch.setattr(module, "_SPANS", max(number, chunk.live_file_count) - 1)
    assert number != chunk.live_file_count
    assert drawn() == exact
    monkeypatch.setattr(module, "_SPANS", 1)
    assert "The map shows 20,000 of the dead ones" in world.page(url).text


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("photos/notes/00", [f"photos/notes/{n:03}.txt" for n in range(10)]),
        ("/photos/notes/001", ["photos/notes/001.txt"]),
        ("*.png", ["photos/cat.png"]),
        ("photos/*.png", ["photos/cat.png"]),
        ("photos/**/0[12]1.txt", ["photos/notes/011.txt", "photos/notes/021.txt"]),
        ("**/two.*", ["damaged/two.txt"]),
        ("photos/*/cat.png", []),
        ("nothing", []),
        ("%", []),
    ],
)
def test_search(world: World, typed: str, found: list[str]) -> None:
    answer = world.page(f"search?q={quote(typed)}")
    assert [href.partition("path=")[2] for href in answer.hrefs if href.startswith("file?")] == found
    assert not [href for href in answer.hrefs if "after=" in href]


def test_a_search_goes_on_where_it_ended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern that matches little is compared with a bounded number of paths for each page."""
    monkeypatch.setattr("cafcat.catalog.console.files._SCANNED", 40)
    url: str | None = "search?q=photos/notes/%3F%3F7.txt"
    found: list[str] = []
    requests = 0
    while url is not None:
        answer = world.page(url)
        found += [href.partition("path=")[2] for href in answer.hrefs if href.startswith("file?")]
        url = next((href for href in answer.hrefs if "after=" in href), None)
        requests += 1
    assert found == [f"photos/notes/{n:03}.txt" for n in range(7, 120, 10) if n != 47]
    assert requests == 3


def test_runs_findings_and_stores(world: World) -> None:
    runs = text_of(world.page("runs"))
    assert "photos" in runs
    assert "Time Added Replaced Removed Unchanged Skipped Failed Bytes Chunks Sources" in runs
    run = text_of(world.page("run?id=2"))
    assert "finished" in run
    assert "Replaced 30" in run
    findings = text_of(world.page("findings?live=1"))
    assert "damaged/two.txt" in findings
    (world.folder / "elsewhere").mkdir()
    (world.folder / "elsewhere" / "never packed").touch()
    world.repository.verify([str(world.folder / "elsewhere")], level="source")
    assert "a source" in text_of(world.page("findings"))
    assert "never packed" not in text_of(world.page("findings?live=1"))
    stores = text_of(world.page("stores"))
    assert (world.folder / "store").as_uri() in stores
    assert (world.folder / "copies").as_uri() in stores


def test_runs_are_listed_with_their_prefix(world: World) -> None:
    from cafcat.model import RunState
    from cafcat.reports import IngestReport

    runs = world.repository.session.catalog.runs
    run = runs.begin_run(sources=["x"], options={"prefix": "k"}, version="1")
    runs.finish_run(run, RunState.FINISHED, IngestReport().as_counts())
    assert "x, prefix k" in text_of(world.page("runs"))


def test_a_failed_run_has_its_error_and_an_event(world: World) -> None:
    from cafcat.model import RunState
    from cafcat.reports import IngestReport

    runs = world.repository.session.catalog.runs
    run = runs.begin_run(sources=["x"], options={}, version="1")
    runs.finish_run(run, RunState.FAILED, IngestReport().as_counts(), "the disk is full")
    page = text_of(world.page(f"run?id={run}"))
    assert "Error the disk is full" in page
    assert "run_failed - the disk is full" in page


def test_a_running_ingest_is_shown_live(world: World) -> None:
    run = world.repository.session.catalog.runs.begin_run(sources=["x"], options={}, version="1")
    try:
        answer = world.page(f"run?id={run}")
        assert f'hx-get="run?id={run}" hx-trigger="every 2s" hx-select="#live"' in answer.text
        assert '<noscript><meta http-equiv="refresh" content="5"></noscript>' in answer.text
        assert f"cafcat runs pause {run}" in answer.text
        assert f"Run {run} on" in text_of(world.page("overview"))
    finally:
        from cafcat.model import RunState
        from cafcat.reports import IngestReport

        world.repository.session.catalog.runs.finish_run(run, RunState.FINISHED, IngestReport().as_counts())
    assert "hx-trigger" not in world.page(f"run?id={run}").text


@pytest.mark.parametrize(
    ("url", "status"),
    [
        ("none", 404),
        ("chunk?uuid=00000000-0000-0000-0000-000000000000", 404),
        ("chunk?uuid=x", 400),
        ("chunk?uuid=00000000", 404),
        ("chunk", 400),
        ("run?id=99999", 404),
        ("run?id=-1", 400),
        ("run?id=99999999999999999999", 400),
        ("runs?before=x", 400),
        ("chunks?state=none", 400),
        ("browse?path=none/", 404),
        ("browse?path=%00", 400),
        ("file?path=" + "x" * 3000, 400),
        ("file?path=none", 200),
        ("search?q=%00", 400),
        ("static/none.css", 404),
        ("static/../app.py", 404),
    ],
)
def test_a_wrong_url_has_a_page_of_its_own(world: World, url: str, status: int) -> None:
    answer = world.page(url, status)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "unexpected" not in answer.text


def rows_of(answer: Answer) -> list[list[str]]:
    """Return the first two cells of each row of the first table."""
    table = answer.text.partition("<tbody>")[2].partition("</tbody>")[0]
    cells = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL) for row in table.split("</tr>")]
    return [[html.unescape(re.sub("<[^>]*>", "", cell)).strip() for cell in row] for row in cells if row]


@pytest.mark.parametrize(
    ("order", "sort"), [("asc", "size_bytes"), ("desc", "dead_bytes"), ("desc", "committed_at")]
)
def test_a_view_is_sorted_and_paged_by_key(
    world: World, monkeypatch: pytest.MonkeyPatch, order: str, sort: str
) -> None:
    whole = rows_of(world.page(f"view?name=chunk_health&sort={sort}&order={order}"))
    assert len(whole) > 1
    monkeypatch.setattr("cafcat.serve.console.pages.views._ROWS", 1)
    url: str | None = f"view?name=chunk_health&sort={sort}&order={order}"
    found: list[list[str]] = []
    while url is not None:
        answer = world.page(url)
        found += rows_of(answer)
        url = next((href for href in answer.hrefs if "&key=" in href), None)
    assert found == whole


@pytest.mark.parametrize(("name", "key"), [("files", "file_path"), ("folders", "folder_path"), ("runs", "run_id")])
def test_every_row_of_a_view_is_on_one_page(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str, key: str
) -> None:
    monkeypatch.setattr("cafcat.serve.console.pages.views._ROWS", 7)
    url: str | None = f"view?name={name}"
    number = 0
    while url is not None:
        answer = world.page(url)
        number += len(rows_of(answer))
        url = next((href for href in answer.hrefs if "&key=" in href), None)
    lines = list(csv.reader(world.client.get(f"/-/csv?name={name}").text.splitlines()))
    where = " WHERE depth = 1" if name == "folders" else ""
    expected = world.repository.session.catalog.pages.rows(f"SELECT {key} AS key FROM cafcat_ops.{name}{where}")
    assert number == len(expected)
    assert len(lines) == number + 1
    assert key in lines[0]


def test_a_view_as_csv(world: World) -> None:
    answer = world.client.get("/-/csv?name=chunk_health&sort=size_bytes&order=asc")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="chunk_health.csv"'
    rows = list(csv.DictReader(answer.text.splitlines()))
    assert [int(row["size_bytes"]) for row in rows] == sorted(int(row["size_bytes"]) for row in rows)
    assert {row["chunk"] for row in rows} == {str(chunk.uuid) for chunk in world.repository.chunks()}
    assert {row["is_adopted"] for row in rows} == {"f"}


def test_duplicates_are_only_a_command(world: World) -> None:
    assert "SELECT * FROM cafcat_ops.duplicates" in html.unescape(world.page("view?name=duplicates").text)
    assert world.client.get("/-/csv?name=duplicates").status == 400


def test_functions_take_arguments(world: World) -> None:
    [chunk] = [
        chunk
        for chunk in world.repository.chunks()
        if "damaged" in str(list(world.repository.chunk_files(str(chunk.uuid))))
    ]
    assert [row[0] for row in rows_of(world.page(f"view?name=lost_with&chunk={chunk.uuid}"))] == [
        "damaged/one.txt",
        "damaged/two.txt",
    ]
    changes = rows_of(world.page("view?name=changes_between&first_run=1&last_run=2"))
    assert {(row[0], row[1]) for row in changes} == {("replaced", f"photos/notes/{n:03}.txt") for n in range(30)}
    history = rows_of(world.page("view?name=file_history&file_path=photos/notes/001.txt"))
    assert len(history) == 2


@pytest.mark.parametrize(
    "query",
    [
        "name=none",
        "name=pg_authid",
        "name=runs&sort=host",
        "name=runs&sort=run_id;DROP",
        "name=lost_with&chunk=x",
        "name=changes_between&first_run=1&last_run=x",
        "name=folders&depth=-1",
        "name=runs&key=x'; DROP TABLE runs",
        "name=chunk_health&sort=size_bytes&key=a&value=x",
    ],
)
def test_odd_queries_of_views_are_refused(world: World, query: str) -> None:
    assert world.client.get(f"/-/view?{query}".replace(" ", "+")).status in (400, 404)


@pytest.mark.parametrize("page", ["view", "csv"])
@pytest.mark.parametrize(
    ("first", "last", "status", "message"),
    [
        (2, 1, 400, "run 1 is not the later one: run 2 ended later"),
        (1, 99999, 404, "there is no run 99999"),
        (99999, 1, 404, "there is no run 99999"),
    ],
)
def test_changes_between_impossible_runs_are_refused(
    world: World, page: str, first: int, last: int, status: int, message: str
) -> None:
    answer = world.page(f"{page}?name=changes_between&first_run={first}&last_run={last}", status)
    assert message in text_of(answer)


def test_folders_have_the_paths_of_the_view(world: World) -> None:
    def shown(depth: int) -> list[str]:
        return [row[0] for row in rows_of(world.page(f"view?name=folders&depth={depth}"))]

    assert (shown(0), shown(1)) == ([""], ["damaged/", "photos/"])


def test_pages_are_read_only(world: World) -> None:
    for method in ("POST", "PUT", "DELETE"):
        answer = world.client.get("/-/overview", method=method)
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


def test_static_files_are_cached_for_ever(world: World) -> None:
    page = world.page("overview").text
    names = re.findall(r'(?:href|src)="(static/[^"]+)"', page)
    assert len(names) == 3
    for name in names:
        assert re.search(r"-[0-9a-f]{16}\.", name)
        assert world.page(name).headers["cache-control"] == "public, max-age=31536000, immutable"


def test_no_page_counts_or_sums_files(world: World, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    connection = world.console().session.catalog._connection
    with trace.open("wb+") as file:
        with connection.statement() as database:
            database.pgconn.trace(file.fileno())
        for url in pages(world.repository).values():
            world.page(url)
        with connection.statement() as database:
            database.pgconn.untrace()
    messages = re.split(r"^\d{4}-\d\d-\d\d .{15}\t", trace.read_text().lower(), flags=re.MULTILINE)
    sent = [text for text in messages if text.startswith("f\t")]
    about_files = [text for text in sent if re.search("file_locations|retired_locations", text)]
    assert len(about_files) > 10
    for statement in about_files:
        assert not re.search(r"\b(count|sum|avg|max|min)\(|\boffset [1-9]", statement), statement
        assert "limit" in statement or "file_path = " in statement, statement


def test_an_empty_catalog_has_all_pages(databases: Databases, tmp_path: Path) -> None:
    with (
        databases.fresh(databases.template()) as url,
        cafcat.open(database_url=url, home=tmp_path / "home", store=(tmp_path / "store").as_uri()) as repository,
        console(repository, **public(".")) as client,
    ):
        for page in pages(repository).values():
            assert client.get(f"/-/{page}").status == 200
        assert "The catalog is empty" in client.get("/-/overview").text


def test_options_of_runs_are_json_in_the_table_of_the_view(world: World) -> None:
    options = [cell for row in rows_of(world.page("view?name=runs")) for cell in row if cell.startswith("{")]
    assert options
    assert not any("None" in text or "'" in text for text in options)


def test_a_rebuilt_catalog_names_the_lost_counts(world: World, databases: Databases, tmp_path: Path) -> None:
    with (
        databases.fresh(databases.template()) as url,
        cafcat.open(
            database_url=url, home=tmp_path / "home", store=(world.folder / "store").as_uri()
        ) as repository,
    ):
        repository.rebuild()
        with console(repository, **public(".")) as client:
            assert "A rebuild does not bring back counts" in client.get("/-/overview").text
            page = client.get("/-/run?id=1").text
            assert "cafcat query files-of-run 1" in page
            assert ", process" not in page
            refused = client.get("/-/view?name=changes_between&first_run=1&last_run=2")
            assert (refused.status, "run 1 was rebuilt" in refused.text) == (400, True)
