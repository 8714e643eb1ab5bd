"""How an operation reports what it does, and how it is stopped."""

import logging
from collections.abc import Callable

from cafcat.events import Event, Warned

__all__ = ["Progress", "StopOnly", "Warnings"]


class Progress:
    """Follows an operation, and can stop it. This class reports nothing and never stops.

    Override the methods that you need. All calls come from the thread that called the operation, except `warn`. The
    calls are frequent: keep the methods fast.
    """

    def begin(self, verb: str, *, files: int | None = None, size_bytes: int | None = None) -> None:
        """A stage of the work begins.

        Args:
            verb: Name of the stage.
            files: Number of files to work on; None if unknown.
            size_bytes: Number of bytes to work on; None if unknown.
        """

    def advance(self, files: int, size_bytes: int) -> None:
        """Further files and bytes are done."""

    def emit(self, event: Event) -> None:
        """Something happened that the user may want to see."""

    def end(self) -> None:
        """The work has ended, with or without an error."""

    @property
    def stopping(self) -> bool:
        """True if the operation is to finish the object at hand, commit it, and return."""
        return False

    def checkpoint(self) -> None:
        """Raise an exception to end the operation at once, without the object at hand."""

    def warn(self, message: str) -> None:
        """Emit a warning."""
        self.emit(Warned(message))


class StopOnly(Progress):
    """Stops an operation as another Progress does. Reports nothing, for work whose bytes are counted elsewhere."""

    def __init__(self, progress: Progress) -> None:
        """Stop as `progress` does."""
        self._progress = progress

    @property
    def stopping(self) -> bool:
        """True if `progress` is stopping."""
        return self._progress.stopping

    def checkpoint(self) -> None:
        """Raise what the checkpoint of `progress` raises."""
        self._progress.checkpoint()


class Warnings(Progress):
    """Passes warnings to a function, and reports nothing else."""

    def __init__(self, warn: Callable[[str], object] | None = None) -> None:
        """Pass warnings to `warn`; None to log them."""
        self._warn = warn

    def warn(self, message: str) -> None:
        """Pass a warning on."""
        if self._warn is None:
            logging.getLogger("cafcat").warning(message)
        else:
            self._warn(message)
