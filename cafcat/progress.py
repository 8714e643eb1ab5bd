"""The object to which an operation reports its progress, and by which it is stopped."""

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cafcat.events import Event

__all__ = ["Pause", "Progress", "StopOnly", "Warnings"]

_LOOK_SECONDS: Final = 0.2
"""How often a paused operation looks whether the user ends it, in seconds."""


class Progress:
    """Follows an operation, and can stop it. This base class shows nothing, and never stops an operation.

    Subclass it and override the methods that you need. The operation calls them in the thread that called the
    operation; only `warn`, which calls `emit` by default, may also be called in other threads. The calls are
    frequent: keep the methods fast.
    """

    def begin(self, verb: str, *, files: int | None = None, size_bytes: int | None = None) -> None:
        """Receive the begin of a stage. An operation can have several stages, one after the other.

        Args:
            verb: Name of the stage, such as "extract".
            files: Number of files to work on; None if unknown.
            size_bytes: Number of bytes to work on; None if unknown.
        """

    def advance(self, files: int, size_bytes: int) -> None:
        """Receive how many further files and bytes are done.

        Args:
            files: Number of files since the last call.
            size_bytes: Number of bytes since the last call. Negative if a file failed, and its bytes do not count.
        """

    def emit(self, event: "Event") -> None:
        """Receive an event: something that the user may want to see, such as a committed chunk or a warning."""

    def end(self) -> None:
        """Receive the end of the operation, with or without an error."""

    @property
    def stopping(self) -> bool:
        """True if the operation is to finish the chunk or file that it is writing, commit it, and return."""
        return False

    def checkpoint(self) -> None:
        """Raise an exception if the operation is to end at once. This base class raises nothing.

        After the exception, the operation drops the object that it is writing. Operations call this often.
        """

    def warn(self, message: str) -> None:
        """Pass a warning to `emit`, as a Warned event."""
        from cafcat.events import Warned  # most commands have no events

        self.emit(Warned(message))


class StopOnly(Progress):
    """A Progress that stops the operation when another Progress does, and drops progress, events and warnings.

    It is for parts of an operation whose bytes are counted elsewhere.
    """

    def __init__(self, progress: Progress) -> None:
        """Create a Progress that stops when `progress` does."""
        self._progress = progress

    @property
    def stopping(self) -> bool:
        """True if `progress` is stopping."""
        return self._progress.stopping

    def checkpoint(self) -> None:
        """Call the checkpoint of `progress`, and raise its errors."""
        self._progress.checkpoint()


class Warnings(Progress):
    """A Progress that passes warnings to a function, or logs them. It shows nothing else and never stops."""

    def __init__(self, warn: Callable[[str], object] | None = None) -> None:
        """Create a Progress for warnings.

        Args:
            warn: Called with the text of each warning. None: warnings are logged to the logger "cafcat".
        """
        self._warn = warn

    def warn(self, message: str) -> None:
        """Call the function with the text of a warning, or log it."""
        if self._warn is None:
            logging.getLogger("cafcat").warning(message)
        else:
            self._warn(message)


class Pause:
    """Whether an operation is to begin no further file for now. Threads may share it."""

    def __init__(self) -> None:
        self._goes_on = threading.Event()
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
