"""A pause of an operation, which another process can begin and end."""

from collections.abc import Callable
from threading import Event
from typing import Final

__all__ = ["Pause"]

_LOOK_SECONDS: Final = 0.2
"""How often a paused operation looks whether the user ends it, in seconds."""


class Pause:
    """Whether an operation is to begin no further file for now. Threads may share it."""

    def __init__(self) -> None:
        self._goes_on = Event()
        self._goes_on.set()

    @property
    def is_paused(self) -> bool:
        """True while the operation is paused."""
        return not self._goes_on.is_set()

    def set(self, *, is_paused: bool) -> None:
        """Begin or end the pause."""
        if is_paused:
            self._goes_on.clear()
        else:
            self._goes_on.set()

    def wait(self, is_ending: Callable[[], bool]) -> None:
        """Wait for the end of the pause.

        Args:
            is_ending: Called several times a second. If it returns True, the wait ends. Its errors are raised.
        """
        while not self._goes_on.wait(_LOOK_SECONDS):
            if is_ending():
                return
