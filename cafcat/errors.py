"""All exceptions that cafcat raises on purpose: CafcatError and its subclasses.

A message is one line: the failure, its place (chunk, path, byte), the expected and the found value, and the next
step for the user. Scripts read `kind` from the output of `--json`, so its values never change. The package that
uses another library translates that library's exceptions once, with `raise ... from`.
"""

from typing import ClassVar, Final

__all__ = [
    "AccessDenied",
    "CafcatError",
    "CatalogLocked",
    "CatalogOutdated",
    "CatalogUnavailable",
    "Conflict",
    "Corrupt",
    "IndexMissing",
    "InvalidInput",
    "Locked",
    "NotFound",
    "NotInstalled",
    "OutputFailed",
    "Refused",
    "ServerFailed",
    "SourceFailed",
    "StoreFailed",
    "TemporaryFileFailed",
    "Unavailable",
    "Unsupported",
    "shown_path",
]

_SHOWN_CHARACTERS: Final = 200
"""Most characters of a path that a message shows."""


def shown_path(path: str) -> str:
    """Return a path for a message, cut after 200 characters: an archive can hold names of a million characters."""
    return path if len(path) <= _SHOWN_CHARACTERS else path[:_SHOWN_CHARACTERS] + "…"


class CafcatError(Exception):
    """Base class of all errors that cafcat raises on purpose.

    Attributes:
        kind: Name of the class of errors for scripts. It never changes.
        retryable: True if the same call may succeed later.
        message: The failure, in one line, without place and hint.
        path: Name of the file in its catalog or archive, or path on disk, if the error is about a file; else None.
        chunk: UUID of the chunk, or key, path or URL of the object, if the error is about a chunk or another object
            of a store; else None.
        byte: Offset in that object, in bytes, if the error is about one place in it; else None.
        hint: The next step for the user; None if there is none.
    """

    kind: ClassVar[str] = "failure"
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        chunk: str | None = None,
        byte: int | None = None,
        hint: str | None = None,
    ) -> None:
        """Create an error. The arguments become the attributes of the same names."""
        super().__init__(message)
        self.message = message
        self.path = path
        self.chunk = chunk
        self.byte = byte
        self.hint = hint

    def __str__(self) -> str:
        places = [
            f"{name} {value!r}" if name == "path" else f"{name} {value}"
            for name, value in (("path", self.path), ("chunk", self.chunk), ("byte", self.byte))
            if value is not None
        ]
        text = self.message + (f" ({', '.join(places)})" if places else "")
        return f"{text}; {self.hint}" if self.hint else text


class NotFound(CafcatError):
    """The path, chunk or object does not exist."""

    kind = "not_found"


class Conflict(CafcatError):
    """A file, object or row with this name exists already, or another command changed it meanwhile."""

    kind = "conflict"


class Corrupt(CafcatError):
    """Bytes contradict their format, their index or their checksum."""

    kind = "corrupt"


class Unsupported(CafcatError):
    """The data is well-formed, but this version of cafcat cannot handle it."""

    kind = "unsupported"


class NotInstalled(CafcatError):
    """A library or program is missing that one of cafcat's extras installs.

    The data could not be examined, so this error means neither damage nor lack of support.
    """

    kind = "not_installed"


class IndexMissing(Unsupported):
    """The companion file that holds an archive's index is missing.

    The archive itself could not be examined, so this error does not mean that it is damaged.
    """


class InvalidInput(CafcatError):
    """An argument is invalid: a size, name, range or setting."""

    kind = "invalid_input"


class Refused(InvalidInput):
    """One file cannot be stored because of its name or size, or because the archive is full. Other files can be."""

    kind = "refused"


class SourceFailed(CafcatError):
    """One file of a source changed, vanished or could not be read. The command continues with the other files.

    Attributes:
        problem: The value of the ProblemKind (cafcat.model) under which this file is reported.
    """

    kind = "source_failed"

    def __init__(
        self, message: str, *, path: str | None = None, problem: str = "unreadable", hint: str | None = None
    ) -> None:
        """Create an error. The arguments become the attributes of the same names."""
        super().__init__(message, path=path, hint=hint)
        self.problem = problem


class Unavailable(CafcatError):
    """A service or device did not answer, or could not do its work. Another try may succeed."""

    kind = "unavailable"
    retryable = True


class StoreFailed(Unavailable):
    """A store could not write or read an object: no space, I/O error, no permission."""

    kind = "store_failed"


class ServerFailed(StoreFailed):
    """The server of a store did not answer, or answered several times that it cannot work now.

    This concerns the whole store. A StoreFailed that is no ServerFailed usually concerns one object.
    """


class TemporaryFileFailed(StoreFailed):
    """A temporary file of cafcat failed, usually for lack of space. No stored data is affected."""


class OutputFailed(Unavailable):
    """A file could not be written to the user's target: no space, no permission."""

    kind = "output_failed"


class AccessDenied(CafcatError):
    """A service rejected the configured credentials, or does not allow them the request."""

    kind = "credentials"


class CatalogUnavailable(Unavailable):
    """The database cannot be reached or started, or it refused the connection or statement."""

    kind = "catalog_unavailable"


class CatalogLocked(CatalogUnavailable):
    """Another session held a lock of the catalog for too long. The catalog was not changed."""

    kind = "locked"


class CatalogOutdated(CafcatError):
    """The database has no cafcat schema, or a schema of another revision."""

    kind = "catalog_revision"


class Locked(CafcatError):
    """Another command holds the lock or lease that this command needs for a store, a chunk or the catalog."""

    kind = "locked"
    retryable = True
