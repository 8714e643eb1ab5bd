"""Ctrl-C in verbs that write: the first asks to finish what is open, the second drops it."""

import json
import os
import signal
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["StopOnSignal"]


class StopOnSignal:
    """While it is entered, a SIGINT or SIGTERM makes it true when called; a second one raises
    KeyboardInterrupt.

    Args: what: what is finished first, as "the open chunk". as_json: whether to say so in JSON.
    """

    def __init__(self, what: str, *, as_json: bool) -> None:
        self._message = f"finishing {what}; press Ctrl-C again to drop it"
        self._as_json = as_json
        self._asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __call__(self) -> bool:
        return self._asked

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
        text = json.dumps({"warning": self._message}) if self._as_json else f"cafcat: {self._message}"
        # Not by sys.stderr: the signal may have come in the middle of a write to it.
        os.write(2, f"{text}\n".encode())

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
