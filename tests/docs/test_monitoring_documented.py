"""docs/monitoring.md, the dashboard and the alert rules use exactly the metrics that cafcat exports."""

import asyncio
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import cafcat
from cafcat.cli.job_metrics import JobMetrics
from cafcat.events import ChunkCommitted, ObjectChecked
from cafcat.model import FileProblem, ProblemKind, Verdict
from cafcat.operations.doctor.metrics import doctor_metrics
from cafcat.serve.asgi import Exchange
from cafcat.serve.catalog_metrics import CatalogMetrics
from cafcat.serve.observing import Metrics
from tests.worlds.catalog_world import sql
from tests.worlds.servers.services import Databases

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "monitoring.md").read_text()
ALERTS = DOCS / "monitoring" / "alerts.yml"
DASHBOARD = DOCS / "monitoring" / "grafana.json"
_RUN = """
INSERT INTO ingest_runs (sources, options, host, process_id, cafcat_version, state, finished_at)
VALUES ('{}', '{}', 'h', 1, '0', 'finished', now())
"""
METRIC = re.compile(r"\bcafcat_[a-z_]+[a-z]")


@pytest.fixture(scope="module")
def texts(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The metrics of a server, and of two commands, with samples of all metrics that can have some."""
    folder = tmp_path_factory.mktemp("monitoring")
    with (
        databases.fresh(databases.template()) as url,
        cafcat.open(database_url=url, home=folder / "home", store=folder / "store") as repository,
    ):
        with repository.writer() as writer:
            writer.add("a", b"first")
        repository.verify(level="data")
        repository.backup()
        with repository.writer() as writer:
            writer.add("b", b"second")
        sql(repository, "UPDATE journal SET unwritten = ARRAY['file:///nowhere']")
        sql(repository, _RUN)
        report = repository.doctor()
        served = _served(repository.settings)
    job = JobMetrics(str(folder / "job.prom"), "ingest")
    job.count(FileProblem("a", ProblemKind.SYMLINK, "is a link"))
    job.count(ChunkCommitted("c", 1, 2, 0.5))
    job.count(ObjectChecked(None, None, False, None, Verdict.OK, 1, 1, ()))
    job.advance(1, 2)
    job.write(0)
    doctor = JobMetrics(str(folder / "doctor.prom"), "doctor")
    doctor.add(doctor_metrics(report))
    doctor.write(0)
    return [served, (folder / "job.prom").read_text(), (folder / "doctor.prom").read_text()]


def _served(settings: cafcat.Settings) -> str:
    """Return the text of /metrics after a request that failed."""
    metrics = Metrics()
    metrics.set_connections(1, 1)
    exchange = Exchange()
    exchange.status, exchange.error_kind = 404, "not_found"
    metrics.end("http", "GET", exchange, 0.1)
    catalog = CatalogMetrics(settings)
    try:
        return (metrics.document()[1] + asyncio.run(catalog.text())).decode()
    finally:
        catalog.close()


def families(texts: list[str]) -> set[str]:
    """Return the names of all exported metrics."""
    found = {name for text in texts for name in re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)}
    return {name for name in found if not name.endswith("_created")}  # times at which counters were made


def samples(texts: list[str]) -> set[str]:
    """Return the names of all samples, such as those of the buckets of a histogram."""
    return {name for text in texts for name in re.findall(r"^(cafcat_\w+)[{ ]", text, re.MULTILINE)}


def expressions() -> dict[str, str]:
    """Return all expressions of the dashboard and of the alerts, by a name for messages."""
    dashboard = json.loads(DASHBOARD.read_text())
    found = {
        f"panel {panel['id']} {panel['title']} {target['refId']}": target["expr"]
        for panel in dashboard["panels"]
        for target in panel.get("targets", [])
    }
    return found | {rule["alert"]: rule["expr"] for rule in alerts()}


def alerts() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def test_every_metric_of_the_dashboard_and_the_alerts_is_exported(texts: list[str]) -> None:
    known = samples(texts)
    unknown = {
        name: missing for name, text in expressions().items() if (missing := set(METRIC.findall(text)) - known)
    }
    assert unknown == {}


def test_every_exported_metric_is_on_the_dashboard_or_in_an_alert(texts: list[str]) -> None:
    used = {name for text in expressions().values() for name in METRIC.findall(text)}
    shown = {name for name in families(texts) if any(each.startswith(name) for each in used)}
    assert families(texts) - shown == set()


def test_the_page_documents_the_exported_metrics(texts: list[str]) -> None:
    rows = [line.partition(" | ")[0] for line in PAGE.splitlines() if line.startswith("| `cafcat_")]
    documented = {name for row in rows for name in METRIC.findall(row)} | {"cafcat_doctor_results"}
    assert documented == families(texts)


def test_every_alert_has_an_action() -> None:
    for rule in alerts():
        assert rule["annotations"].keys() == {"summary", "action"}, rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning", "info")


def test_each_percent_sign_in_a_crontab_has_a_backslash() -> None:
    lines = [line for line in PAGE.splitlines() if re.match(r"[0-9*/]+ \S+ \* \* \* ", line)]
    assert len(lines) == 4
    assert not any(re.search(r"(?<!\\)%", line) for line in lines)


def test_the_commands_of_the_alerts_name_what_to_copy() -> None:
    for rule in alerts():
        for command in re.findall("`(cafcat copy [^`]*)`", rule["annotations"]["action"]):
            assert "--all" in command, rule["alert"]


def test_the_dashboard_has_panels_that_do_not_overlap() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def promtool() -> str:
    """Return the path of promtool, which checks files of Prometheus, or skip the test."""
    path = os.pathsep.join([os.environ.get("CAFCAT_TEST_PROGRAMS", ""), os.environ.get("PATH", "")])
    return shutil.which("promtool", path=path) or pytest.skip("no promtool (Debian's package prometheus)")


def test_promtool_accepts_the_alerts() -> None:
    done = subprocess.run([promtool(), "check", "rules", ALERTS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout


@pytest.mark.slow
def test_the_alerts_fire_when_they_should() -> None:
    """It evaluates months of hours."""
    command = [promtool(), "test", "rules", Path(__file__).with_name("alerts_tests.yml")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout


def test_promtool_accepts_the_metrics(texts: list[str]) -> None:
    """It also complains of names that do not follow the rules of Prometheus."""
    for text in texts:
        done = subprocess.run([promtool(), "check", "metrics"], input=text, capture_output=True, text=True)
        complaints = [line for line in done.stderr.splitlines() if "_created" not in line]
        assert complaints == [], done.stderr
