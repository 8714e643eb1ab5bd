"""Handles SIGINT (Ctrl-C), SIGTERM and SIGHUP while a command works.

StopOnSignal lets the command finish its open object first. `interrupted_by_signals` interrupts the command at once.
"""

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, Self

from cafcat.cli.errors import INTERRUPTED

__all__ = ["StopOnSignal", "interrupted_by_signals"]


class StopOnSignal:
    """Handles SIGINT, SIGTERM and SIGHUP inside a `with` statement.

    The first two signals print a message. After the first one `stopping` is true; after the second one `checkpoint`
    raises KeyboardInterrupt. Operations read `stopping` and call `checkpoint` at places where they can stop safely.
    The third signal ends the process at once, with exit code 130.
    """

    def __init__(self, what: str, *, as_json: bool, finishes: bool = True) -> None:
        """Prepare the messages. Signals are handled from the start of the `with` statement.

        Args:
            what: Name of the object that is finished after the first signal, such as "any open chunk": there
                may be none.
            as_json: True to print the messages as JSON.
            finishes: False if the object is dropped after the first signal; this changes only the message.
        """
        first = f"finishing {what}; press Ctrl-C again to drop it"
        if not finishes:
            first = f"dropping {what}, unless all of it was read"
        self._messages = (first, f"dropping {what}, unless it is done; a third Ctrl-C ends at once")
        self._as_json = as_json
        self._signals = 0
        self._before: dict[signal.Signals, Any] = {}

    @property
    def stopping(self) -> bool:
        """True after the first SIGINT, SIGTERM or SIGHUP."""
        return self._signals > 0

    def checkpoint(self) -> None:
        """Raise KeyboardInterrupt if a second SIGINT, SIGTERM or SIGHUP came."""
        if self._signals > 1:
            raise KeyboardInterrupt

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self._signals += 1
        if self._signals > len(self._messages):
            _end_at_once()
        message = self._messages[self._signals - 1]
        text = json.dumps({"warning": message}) if self._as_json else f"cafcat: {message}"
        with contextlib.suppress(OSError):
            # Not by sys.stderr: the signal may have come in the middle of a write to it.
            os.write(2, f"{text}\n".encode())

    def __enter__(self) -> Self:
        self._before = _handled(self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Let the first SIGINT, SIGTERM or SIGHUP in the `with` block raise KeyboardInterrupt.

    This is for work whose result is useless unless it is complete, such as writing one file. The second signal is
    ignored, so that unfinished files are removed. The third signal ends the program at once.
    """
    signals = 0

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal signals
        signals += 1
        if signals > 2:
            _end_at_once()
        if signals == 1:
            raise KeyboardInterrupt

    before = _handled(handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_at_once() -> None:
    """End the process with exit code 130, even if a thread waits for a server.

    The next recovery removes the leftovers of a writer.
    """
    if os.isatty(2):
        os.write(2, b"\x1b[?25h\n")  # the cursor, which a progress bar hides
    os._exit(INTERRUPTED)


def _handled(handle: Any) -> dict[signal.Signals, Any]:
    """Install a handler of SIGINT, SIGTERM and SIGHUP, and return the handlers that it replaces.

    A SIGHUP that is ignored, as nohup arranges, stays ignored.
    """
    before = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
            continue  # started by nohup: a terminal that goes away is no reason to stop
        before[number] = signal.signal(number, handle)
    return before
