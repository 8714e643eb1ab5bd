"""Spans of OpenTelemetry: of one read and of one commit. Each program is a new process, as spans stay on."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Cafcat

pytest.importorskip("opentelemetry.sdk")

PROGRAM = """
import json, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
import cafcat

exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
with cafcat.open(tracing=True) as repository:
    {body}
for span in exporter.get_finished_spans():
    print(json.dumps({{
        "name": span.name,
        "id": span.context.span_id,
        "parent": span.parent and span.parent.span_id,
        "attributes": dict(span.attributes),
        "failed": not span.status.is_ok and span.status.status_code.name == "ERROR",
        "description": span.status.description,
        "events": len(span.events),
    }}))
"""
WRITE = """
    with repository.writer() as writer:
        writer.add("secret-name", b"secret-content")
"""


@pytest.fixture
def spans_of(cafcat: Cafcat, tmp_path: Path) -> Any:
    """A function that runs statements with a repository, and returns the spans in the order of their ends."""

    def run(body: str) -> list[dict[str, Any]]:
        program = PROGRAM.format(body=body.strip())
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, env=cafcat.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert "secret" not in done.stdout
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


def names_below(spans: list[dict[str, Any]], parent: int | None) -> list[str]:
    return [span["name"] for span in spans if span["parent"] == parent]


def only(spans: list[dict[str, Any]], name: str) -> dict[str, Any]:
    [found] = [span for span in spans if span["name"] == name]
    return found


def test_the_spans_of_one_commit(spans_of: Any) -> None:
    spans = spans_of(WRITE)
    chunk = only(spans, "cafcat.write_chunk")
    assert names_below(spans, None) == ["cafcat.write_chunk"]
    assert names_below(spans, chunk["id"]) == [
        "cafcat.pack",
        "cafcat.finish_object",
        "cafcat.commit",
        "cafcat.journal",
    ]
    assert names_below(spans, only(spans, "cafcat.commit")["id"]) == ["cafcat.copy_rows"]
    assert chunk["attributes"]["cafcat.files"] == 1
    assert chunk["attributes"]["cafcat.size_bytes"] > len(b"secret-content")
    assert chunk["attributes"]["cafcat.store"].startswith("file:///")
    assert only(spans, "cafcat.copy_rows")["attributes"] == {"cafcat.rows": 1}
    assert not any(span["failed"] for span in spans)


def test_the_spans_of_one_read(cafcat: Cafcat, spans_of: Any) -> None:
    spans_of(WRITE)
    [chunk] = cafcat("chunks", "ls", "--json").documents
    spans = spans_of('assert repository.read("secret-name") == b"secret-content"')
    root = only(spans, "cafcat.read_path")
    assert names_below(spans, None) == ["cafcat.read_path"]
    assert names_below(spans, root["id"]) == ["cafcat.locate", "cafcat.read"]
    read = only(spans, "cafcat.read")
    assert names_below(spans, read["id"]) == ["cafcat.range_read", "cafcat.check"]
    size = len(b"secret-content")
    assert root["attributes"] == {"cafcat.size_bytes": size}
    assert only(spans, "cafcat.locate")["attributes"] == {"cafcat.chunk": chunk["uuid"], "cafcat.size_bytes": size}
    assert read["attributes"]["cafcat.end_byte"] - read["attributes"]["cafcat.start_byte"] == size
    assert only(spans, "cafcat.range_read")["attributes"] == {
        "cafcat.store": chunk["store"],
        "cafcat.object": chunk["object_key"],
        "cafcat.size_bytes": size,
    }


def test_a_range_and_a_decoded_file_are_read_as_without_spans(
    cafcat: Cafcat, spans_of: Any, tmp_path: Path
) -> None:
    spans_of(WRITE)
    spans_of('assert repository.read("secret-name", 7, 10) == b"con"')
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/a").write_bytes(b"x" * 100_000)
    cafcat("ingest", "tree", "--format", "chunkio")
    spans = spans_of('assert repository.read("tree/a") == b"x" * 100_000')
    assert {"cafcat.range_read", "cafcat.check"} <= {span["name"] for span in spans}


def test_a_damaged_file_fails_the_check_only(cafcat: Cafcat, spans_of: Any, tmp_path: Path) -> None:
    spans_of(WRITE)
    [chunk] = (tmp_path / "store").glob("*.caf")
    chunk.write_bytes(chunk.read_bytes().replace(b"secret-content", b"public-content"))
    spans = spans_of(
        """
    try:
        repository.read("secret-name")
    except cafcat.errors.Corrupt:
        pass
    else:
        raise AssertionError
"""
    )
    assert {span["name"]: span["failed"] for span in spans} == {
        "cafcat.locate": False,
        "cafcat.range_read": False,
        "cafcat.check": True,
        "cafcat.read": True,
        "cafcat.read_path": True,
    }
    assert only(spans, "cafcat.check")["attributes"]["error.type"] == "Corrupt"
    assert all(span["events"] == 0 and span["description"] is None for span in spans)


def test_a_commit_that_is_refused_fails(spans_of: Any) -> None:
    """Another writer commits the path first."""
    spans = spans_of(
        """
    try:
        with repository.writer(on_conflict="fail") as writer:
            writer.add("secret-name", b"secret-content" * 1_000_000)
            with cafcat.open() as other, other.writer() as faster:
                faster.add("secret-name", b"secret-content")
    except cafcat.errors.Conflict:
        pass
    else:
        raise AssertionError
"""
    )
    failed = {span["name"] for span in spans if span["failed"]}
    assert {"cafcat.write_chunk", "cafcat.commit"} <= failed
    assert (
        only([span for span in spans if span["failed"]], "cafcat.commit")["attributes"]["error.type"] == "Conflict"
    )


def test_a_command_prints_its_spans(cafcat: Cafcat, tmp_path: Path) -> None:
    """With the exporter that the environment names; the worker processes of an ingest have their own."""
    (tmp_path / "tree").mkdir()
    for name in ("a", "b"):
        (tmp_path / "tree" / name).write_bytes(b"content")
    environment = {**cafcat.environment, "CAFCAT_TRACING": "true", "OTEL_TRACES_EXPORTER": "console"}
    for arguments, name in (
        (("ingest", "tree", "--jobs", "2"), "cafcat.write_chunk"),
        (("cat", "tree/a"), "cafcat.read"),
    ):
        done = subprocess.run(
            cafcat.command(*arguments), cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert f'"name": "{name}"' in done.stderr
        assert '"service.name": "cafcat"' in done.stderr


@pytest.mark.parametrize(
    ("exporter", "code", "shown"),
    [
        ("none", 0, ""),
        ("jaeger", 2, "no exporter of traces 'jaeger'; OTEL_TRACES_EXPORTER can be console, none or otlp"),
    ],
)
def test_no_spans_are_sent_without_a_known_exporter(
    cafcat: Cafcat, tmp_path: Path, exporter: str, code: int, shown: str
) -> None:
    (tmp_path / "a").write_bytes(b"content")
    cafcat("ingest", "a")
    environment = {
        **cafcat.environment,
        "CAFCAT_TRACING": "true",
        "OTEL_TRACES_EXPORTER": exporter,
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
    }
    done = subprocess.run(cafcat.command("cat", "a"), cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == code
    assert (shown in done.stderr) if shown else not done.stderr


@pytest.mark.parametrize("arguments", [("ingest", "tree"), ("get", "tree/a", "-o", "copy"), ("verify",)])
def test_nothing_is_imported_without_the_setting(
    cafcat: Cafcat, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/a").write_bytes(b"content")
    cafcat("ingest", "tree")
    program = (
        "import sys; from cafcat.cli.app import run; code = run(sys.argv[1:]); "
        "sys.exit(code or any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    environment = {**cafcat.environment, "OTEL_TRACES_EXPORTER": "console"}
    done = subprocess.run([sys.executable, "-c", program, *arguments], cwd=tmp_path, env=environment)
    assert done.returncode == 0
