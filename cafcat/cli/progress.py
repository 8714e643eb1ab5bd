"""Shows the progress of long operations on stderr: a bar on a terminal; elsewhere, and with --json, lines."""

import sys
import threading
import time
from collections import Counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from cafcat.cli.call import Call
from cafcat.cli.output import one_line, printable
from cafcat.cli.stopping import StopOnSignal
from cafcat.events import ChunkCommitted, Event, Warned
from cafcat.model import FileProblem, ProblemKind
from cafcat.progress import Progress
from cafcat.support.quantities import format_size, plural

if TYPE_CHECKING:
    from rich.progress import TaskID

__all__ = ["ShownProgress"]

LISTED_PROBLEMS = 100
"""Number of failures that are printed without -v and --json. A million of them would hide all other messages."""
STATUS_SECONDS = 10.0
"""Time between two lines of progress, which are printed if there is no bar, in seconds."""
BAR_SECONDS = 0.1
"""Shortest time between two updates of the progress bar, in seconds."""
NARROW_COLUMNS = 60
"""Width of a terminal below which no bar is drawn, so that there is room for the numbers."""
BAR_COLUMNS = 16
"""Width of the bar."""
TIME_COLUMNS = 9
"""Width of the time at the end of the line, such as " 10:00:11"."""


class ShownProgress(Progress):
    """Shows the progress and events of one operation, most of them on stderr. Use it in a `with` statement.

    A command overrides `show` for the events of its operation.

    Attributes:
        stop: Handles the signals that end the operation; None if no signal sets `stopping`.
        verb: Name of the current stage.
        files: Number of files that are done in this stage.
        size_bytes: Number of bytes that are done in this stage.
        files_expected: Number of files of this stage; None if it is unknown.
        bytes_expected: Number of bytes of this stage; None if it is unknown.
        problems: Number of files with a problem, by kind of problem.
        chunks_committed: Number of chunks that were committed.
        files_committed: Number of files in these chunks.
        bytes_committed: Total size of the objects of these chunks.
    """

    def __init__(self, call: Call, status_seconds: float = STATUS_SECONDS) -> None:
        self._call = call
        self._job = call.job
        self._status_seconds = status_seconds
        self._started = self._stage_started = time.monotonic()
        self._display: _Bar | _StatusLines | None = None
        self._failures = 0
        self.stop: StopOnSignal | None = None
        self.verb = ""
        self.files = self.size_bytes = 0
        self.files_expected: int | None = None
        self.bytes_expected: int | None = None
        self.problems: Counter[ProblemKind] = Counter()
        self.chunks_committed = self.files_committed = self.bytes_committed = 0

    @property
    def seconds(self) -> float:
        """Seconds since the beginning of the first stage: without the start of an embedded database."""
        return time.monotonic() - self._started

    @property
    def stage_seconds(self) -> float:
        """Seconds since the beginning of the current stage."""
        return time.monotonic() - self._stage_started

    def begin(self, verb: str, *, files: int | None = None, size_bytes: int | None = None) -> None:
        """Begin a stage of the operation: set `files` and `size_bytes` to 0, and start a new display.

        With --quiet, nothing is displayed.

        Args:
            verb: Name of the stage, as it is shown.
            files: Number of files of the stage; None if it is unknown.
            size_bytes: Number of bytes of the stage; None if it is unknown.
        """
        self.end()
        self._stage_started = time.monotonic()
        if not self.verb:
            self._started = self._stage_started
        self.verb, self.files_expected, self.bytes_expected = verb, files, size_bytes
        self.files = self.size_bytes = 0
        if not self._call.quiet:
            on_terminal = sys.stderr.isatty() and not self._call.json
            self._display = _Bar(self) if on_terminal else _StatusLines(self, self._status_seconds)

    def advance(self, files: int, size_bytes: int) -> None:
        """Count further files and bytes of this stage as done."""
        self.files += files
        self.size_bytes += size_bytes
        if self._job is not None:
            self._job.advance(files, size_bytes)
        if self._display:
            self._display.advanced()

    @property
    def stopping(self) -> bool:
        """True after the first SIGINT, SIGTERM or SIGHUP, if `stop` is set."""
        return self.stop is not None and self.stop.stopping

    def checkpoint(self) -> None:
        """Raise KeyboardInterrupt if a second SIGINT, SIGTERM or SIGHUP came, and `stop` is set."""
        if self.stop is not None:
            self.stop.checkpoint()

    def emit(self, event: Event) -> None:
        """Show an event: problems, warnings and committed chunks here, all others by `show`."""
        if isinstance(event, FileProblem):
            self.problem(event)
        elif isinstance(event, Warned):
            self._warned(event.message)
        elif isinstance(event, ChunkCommitted):
            self._chunk_committed(event)
        else:
            self.show(event)
        if self._job is not None:
            self._job.count(event)

    def show(self, event: Event) -> None:
        """Show an event of one operation. This method does nothing; commands override it for their operation.

        An operation that writes first recovers leftovers of dead writers, and emits the events of `recover`, too.
        So methods ignore the events of other operations.
        """

    def problem(self, problem: FileProblem) -> None:
        """Count a problem of a file, and print it.

        With --json, each problem is printed on stdout; with -v, each on stderr; else the first hundred
        failures on stderr.
        """
        self.problems[problem.kind] += 1
        self._failures += problem.kind.is_failure
        if self._call.json:
            self._call.output.document({"problem": problem._asdict()})
            self._call.output.flush()
        elif self._call.verbose or (problem.kind.is_failure and self._failures <= LISTED_PROBLEMS):
            self._print(f"{printable(problem.path)}: {problem.message}")

    def _warned(self, message: str) -> None:
        if self._call.json:
            self._call.output.error_document({"warning": message})
        elif not self._call.quiet:
            self._print(f"warning: {message}")

    def _chunk_committed(self, event: ChunkCommitted) -> None:
        chunk, files, size_bytes, _ = event
        self.chunks_committed += 1
        self.files_committed += files
        self.bytes_committed += size_bytes
        if self._call.verbose and self._call.json:
            self._call.output.document({"chunk": chunk, "files": files, "size_bytes": size_bytes})
        elif self._call.verbose:
            self._print(f"committed chunk {chunk}: {plural(files, 'file')}, {format_size(size_bytes)}")

    def end(self) -> None:
        """Remove the display of the current stage."""
        if self._display:
            self._display.close()
            self._display = None

    def status(self) -> dict[str, Any]:
        """Return the counters of the current stage, as `--json` prints them.

        `seconds` counts from the beginning of the first stage.
        """
        return {
            "verb": self.verb,
            "files": self.files,
            "bytes": self.size_bytes,
            "files_expected": self.files_expected,
            "bytes_expected": self.bytes_expected,
            "seconds": round(self.seconds, 3),
        }

    def show_status(self) -> None:
        """Print the counters of the current stage in one line on stderr."""
        if self._call.json:
            self._call.output.error_document({"progress": self.status()})
        else:
            self._print(f"{self.verb}: {_in_words(self)}")

    def _print(self, text: str) -> None:
        line = f"cafcat: {one_line(text)}"
        if isinstance(self._display, _Bar):
            self._display.print(line)
        else:
            print(line, file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        hidden = self._failures - LISTED_PROBLEMS
        if hidden > 0 and not self._call.json and not self._call.verbose:
            self._print(f"{hidden} more failures are not listed; -v lists all")


def _in_words(progress: ShownProgress) -> str:
    """Return a stage's counters as text: "120 of 500 files, 1.2 GB of 3.0 GB, 60 files/s, 600.0 MB/s, 3 s left".

    Totals and the time left are left out if they are unknown, and bytes in a stage that counts none.
    """
    files, size_bytes = progress.files, progress.size_bytes
    of_files, of_bytes = progress.files_expected, progress.bytes_expected
    parts = [plural(files, "file") if of_files is None else f"{files} of {plural(of_files, 'file')}"]
    if size_bytes or of_bytes is not None:
        parts.append(format_size(size_bytes) + (f" of {format_size(of_bytes)}" if of_bytes is not None else ""))
    parts.append(_rate(progress))
    done, total = (size_bytes, of_bytes) if of_bytes else (files, of_files)
    if total and done:
        parts.append(f"{max(0.0, (total - done) * progress.stage_seconds / done):.0f} s left")
    return ", ".join(parts)


def _in_width(progress: ShownProgress, columns: int) -> str:
    """Return a stage's counters as text: "copy: 120 files, 1.2 GB, 60 files/s, 600.0 MB/s".

    If the text is too long, the least important parts are left out: first the files per second, then the bytes per
    second, the bytes, and at last the name of the stage.

    Args:
        progress: The counters.
        columns: Largest length of the text. Only the number of files may be longer.
    """
    files, size_bytes = plural(progress.files, "file"), progress.size_bytes
    speeds = _rate(progress).split(", ")
    head = [f"{progress.verb}: {files}", *([format_size(size_bytes)] if size_bytes else [])]
    texts = [[*head, *speeds], [*head, speeds[-1]], head, head[:1], [files]]
    return next((text for parts in texts if len(text := ", ".join(parts)) <= columns), files)


def _rate(progress: ShownProgress) -> str:
    seconds = max(progress.stage_seconds, 0.001)
    files = f"{progress.files / seconds:.0f} files/s"
    return f"{files}, {format_size(int(progress.size_bytes / seconds))}/s" if progress.size_bytes else files


class _StatusLines:
    """Prints a line of progress at a fixed interval, in a thread, so that lines appear even during a large file."""

    def __init__(self, progress: ShownProgress, seconds: float) -> None:
        self._progress, self._seconds = progress, seconds
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cafcat-progress", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._done.wait(self._seconds):
            self._progress.show_status()

    def advanced(self) -> None:
        """Do nothing: the thread reads the counters of the progress when it prints a line."""

    def close(self) -> None:
        """Print no further lines, and wait for the thread."""
        self._done.set()
        self._thread.join()


class _Bar:
    """A progress bar on the terminal, whose numbers are updated at most ten times a second."""

    def __init__(self, progress: ShownProgress) -> None:
        from rich import progress as parts
        from rich.console import Console

        total = progress.bytes_expected or progress.files_expected
        self._console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
        has_bar = bool(total) and self._console.width >= NARROW_COLUMNS
        first = [parts.BarColumn(bar_width=BAR_COLUMNS)] if has_bar else [] if total else [parts.SpinnerColumn()]
        last = [parts.TimeRemainingColumn()] if total else [parts.TimeElapsedColumn()]
        text = parts.TextColumn("{task.description}", markup=False)
        self._other_columns = TIME_COLUMNS + (BAR_COLUMNS + 1 if has_bar else 0 if total else 2)
        self._bar = parts.Progress(*first, text, *last, console=self._console, transient=True)
        self._progress, self._next = progress, 0.0
        self._task: TaskID = self._bar.add_task(progress.verb, total=total)
        self._bar.start()

    def advanced(self) -> None:
        """Show the counters of the progress, unless they were updated less than 0.1 seconds ago."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + BAR_SECONDS
        done = self._progress.size_bytes if self._progress.bytes_expected else self._progress.files
        text = _in_width(self._progress, self._console.width - self._other_columns)
        self._bar.update(self._task, completed=done, description=text)

    def print(self, line: str) -> None:
        """Print a line on the terminal, above the progress bar."""
        self._console.print(line)

    def close(self) -> None:
        """Stop the progress bar, and remove it from the terminal."""
        self._bar.stop()
