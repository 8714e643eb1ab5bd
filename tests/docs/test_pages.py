"""Links lead to files, SQL runs, and so does the Python of the README."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import cafcat
from tests.worlds.servers.services import Databases

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return [text for found, text in BLOCK.findall(page.read_text()) if found == language]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", page.read_text()):
        if "://" in target:
            continue
        path = page.parent / target if target else page
        assert path.exists(), target
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path), f"{target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    found: Counter[str] = Counter()
    names = set()
    for heading in re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S), re.M):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        names.add(f"{name}-{found[name]}" if found[name] else name)
        found[name] += 1
    return names


SQL = [(page.name, text) for page in PAGES for text in blocks(page, "sql")]


@pytest.fixture(scope="module")
def catalog_url(databases: Databases) -> Iterator[str]:
    """A database for statements that only read."""
    with databases.fresh(databases.template()) as url:
        yield url


@pytest.mark.parametrize(("page", "statement"), SQL, ids=[f"{page}-{n}" for n, (page, _) in enumerate(SQL)])
def test_every_query_runs(catalog_url: str, page: str, statement: str) -> None:
    with psycopg.connect(catalog_url) as connection:
        connection.read_only = True
        assert connection.execute(statement.encode()).description


def test_pages_have_queries() -> None:
    assert len(SQL) >= 10


def test_the_python_of_the_readme_runs(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CAFCAT_DATABASE_URL", database_url)
    monkeypatch.setenv("CAFCAT_HOME", str(tmp_path / "home"))
    (tmp_path / "photos" / "2026").mkdir(parents=True)
    (tmp_path / "photos" / "2026" / "cat.jpg").write_bytes(b"meow")
    found: dict[str, object] = {}
    for example in blocks(ROOT / "README.md", "python"):
        exec(example, found)  # noqa: S102 - our own page
    assert found["data"] == found["same"] == b"meow"
    assert capsys.readouterr().out == "photos/2026/cat.jpg 4\n"


def test_public_names_exist() -> None:
    for name in cafcat.__all__:
        assert getattr(cafcat, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        cafcat.nothing  # noqa: B018
