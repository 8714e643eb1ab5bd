"""Calls functions that may hang, such as on a disk or a server that does not answer."""

import threading
from collections.abc import Callable, Mapping
from time import monotonic
from typing import TypeVar

__all__ = ["call_all_within", "call_within"]

Key = TypeVar("Key")
Result = TypeVar("Result")


class _Call(threading.Thread):
    """A call in a thread of its own, which does not keep the process alive."""

    def __init__(self, function: Callable[[], object]) -> None:
        super().__init__(name="cafcat-limited", daemon=True)
        self._function = function
        self.result: object = None
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self._function()
        except Exception as error:  # noqa: BLE001 - raised again, or returned, in the thread of the caller
            self.error = error


def call_within(function: Callable[[], Result], seconds: float) -> Result:
    """Return what a function returns, or raise what it raises.

    Args:
        function: The function. It is called in another thread, and left alone there if it takes longer.
        seconds: How long to wait for it.

    Raises:
        TimeoutError: The function has not returned in time.
    """
    [result] = call_all_within({None: function}, seconds).values()
    if isinstance(result, Exception):
        raise result
    return result


def call_all_within(functions: Mapping[Key, Callable[[], Result]], seconds: float) -> dict[Key, Result | Exception]:
    """Call several functions at the same time, and return their results under their keys.

    Args:
        functions: The functions. Each is called in a thread of its own, and left alone there if it takes longer.
        seconds: How long to wait for all of them.

    Returns:
        For each function its result; or the exception that it raised; or a TimeoutError.
    """
    calls = {key: _Call(function) for key, function in functions.items()}
    until = monotonic() + seconds
    results: dict[Key, Result | Exception] = {}
    for key, call in calls.items():
        call.join(max(0.0, until - monotonic()))
        if call.is_alive():
            results[key] = TimeoutError(f"no answer within {seconds:g} s")
        else:
            results[key] = call.error or call.result  # type: ignore[assignment] # of this function
    return results
