"""Metrics of one command, in a file for the textfile collector of Prometheus' node_exporter (`--metrics-file`)."""

import os
import re
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from cafcat.errors import OutputFailed
from cafcat.events import ChunkCommitted, Event
from cafcat.model import FileProblem
from cafcat.support.exposition import Family, Sample, exposition

__all__ = ["JobMetrics"]

_LAST_SUCCESS: Final = "job_last_success_timestamp_seconds"


class JobMetrics:
    """Counts the work of one command, and writes the numbers into a file at its end."""

    def __init__(self, file: str, verb: str) -> None:
        """Begin to count. The file is not opened yet.

        Args:
            file: Name of the file.
            verb: Name of the command, such as "store migrate": the label of all metrics.
        """
        self._file = Path(file)
        self._verb = verb
        self._began_at = time.time()
        self._began = time.monotonic()
        self._files = self._bytes = self._chunk_bytes = 0
        self._commits: list[float] = []
        self._problems: Counter[tuple[str, ...]] = Counter()
        self._events: Counter[tuple[str, ...]] = Counter()
        self._further: list[Family] = []

    def advance(self, files: int, size_bytes: int) -> None:
        """Count files and bytes that are done, in all stages of the command."""
        self._files += files
        self._bytes += size_bytes

    def count(self, event: Event) -> None:
        """Count an event of the operation."""
        if isinstance(event, FileProblem):
            self._problems[(event.kind,)] += 1
            return
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__).lower()
        self._events[name, str(getattr(event, "verdict", getattr(event, "outcome", "")))] += 1
        if isinstance(event, ChunkCommitted):
            self._chunk_bytes += event.size_bytes
            self._commits += [event.commit_seconds] if event.commit_seconds is not None else []

    def add(self, families: Iterable[Family]) -> None:
        """Add metrics that the command itself has found."""
        self._further += families

    def write(self, code: int) -> None:
        """Write the metrics into the file: all of them, or none. The file can be read by everybody.

        Args:
            code: Exit code of the command. After 0, the time of the last success is now; else that of the old file.

        Raises:
            OutputFailed: The file cannot be written.
        """
        success = time.time() if code == 0 else self._former_success()
        temporary = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        try:
            temporary.write_text(exposition([*self._families(code, success), *self._further]))
            temporary.chmod(0o644)
            temporary.replace(self._file)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            message = f"cannot write the metrics: {error.strerror}"
            raise OutputFailed(message, path=str(self._file)) from error

    def _former_success(self) -> float | None:
        pattern = rf"^cafcat_{_LAST_SUCCESS}\{{.*\}} ([0-9.e+]+)$"
        with suppress(OSError, ValueError):
            if found := re.search(pattern, self._file.read_text(), re.MULTILINE):
                return float(found[1])
        return None

    def _families(self, code: int, success: float | None) -> list[Family]:
        return [
            self._one("job_exit_code", "Exit code of the last run of the command.", code),
            self._one("job_start_timestamp_seconds", "When the last run began.", self._began_at),
            self._one("job_duration_seconds", "How long the last run took.", time.monotonic() - self._began),
            self._one(_LAST_SUCCESS, "When the command ended with exit code 0 last.", success),
            self._one("job_files", "Files that the last run handled; rows of backup and restore.", self._files),
            self._one("job_bytes", "Bytes that the last run packed, read, copied or removed.", self._bytes),
            self._one("job_written_bytes", "Bytes of the chunks that the last run committed.", self._chunk_bytes),
            self._by("job_problems", "Files with a problem, by kind.", self._problems, "kind"),
            self._by(
                "job_events", "Events of the last run, by kind and outcome.", self._events, "event", "outcome"
            ),
            self._commit_times(),
            self._one("job_longest_commit_seconds", "The longest commit.", max(self._commits, default=None)),
        ]

    def _commit_times(self) -> Family:
        verb = {"verb": self._verb}
        samples = (Sample(sum(self._commits), verb, "_sum"), Sample(len(self._commits), verb, "_count"))
        return Family("job_commit_seconds", "summary", "How long transactions that commit a chunk took.", samples)

    def _one(self, name: str, help: str, value: float | None) -> Family:
        return Family(name, "gauge", help, () if value is None else (Sample(value, {"verb": self._verb}),))

    def _by(self, name: str, help: str, counts: Counter[tuple[str, ...]], *labels: str) -> Family:
        samples = (
            Sample(n, {"verb": self._verb, **dict(zip(labels, key, strict=True))}) for key, n in counts.items()
        )
        return Family(name, "gauge", help, tuple(samples))
