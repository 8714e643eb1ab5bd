"""The one exception tree. Every error that cafcat raises on purpose is a CafcatError.

A message says what happened, where (chunk, path, byte), what was expected and found, and what to do next,
in one line. `kind` is stable: scripts read it from `--json`. Exceptions of other libraries are translated
once, at the edge of the room that uses the library, with `from`.
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


def shown_path(path: str) -> str:
    """For messages: a name that an archive has may be of a million characters."""
    return path if len(path) <= _SHOWN_CHARACTERS else path[:_SHOWN_CHARACTERS] + "…"


class CafcatError(Exception):
    """Base of all errors; `kind` is its stable name, `retryable` whether trying again may help."""

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
        """Args: path: the file's name in the catalog; chunk: uuid or object of the chunk; byte: offset in it;
        hint: what the user can do next."""
        super().__init__(message)
        self.message = message
        self.path = path
        self.chunk = chunk
        self.byte = byte
        self.hint = hint

    def __str__(self) -> str:
        where = [
            f"{name} {value!r}" if name == "path" else f"{name} {value}"
            for name, value in (("path", self.path), ("chunk", self.chunk), ("byte", self.byte))
            if value is not None
        ]
        text = self.message + (f" ({', '.join(where)})" if where else "")
        return f"{text}; {self.hint}" if self.hint else text


class NotFound(CafcatError):
    """The path, chunk or object does not exist."""

    kind = "not_found"


class Conflict(CafcatError):
    """Something of that name is already there, or changed under our hands."""

    kind = "conflict"


class Corrupt(CafcatError):
    """Bytes are not what the format, the index or the checksum says."""

    kind = "corrupt"


class Unsupported(CafcatError):
    """Well-formed, but not something that this version handles."""

    kind = "unsupported"


class NotInstalled(CafcatError):
    """A library or program that is needed for this, and comes with an extra. Nothing is known of what was to be
    read, so it is neither damaged nor unsupported."""

    kind = "not_installed"


class IndexMissing(Unsupported):
    """What says how to read this lay beside it, and is not there. Nothing follows for what was to be read."""


class InvalidInput(CafcatError):
    """The caller asked for something that makes no sense: a bad size, name, range or setting."""

    kind = "invalid_input"


class Refused(InvalidInput):
    """One file is refused by name: its name or its size cannot be stored. The others go on."""

    kind = "refused"


class SourceFailed(CafcatError):
    """One file of a source changed, vanished or could not be read. The others go on."""

    kind = "source_failed"

    def __init__(
        self, message: str, *, path: str | None = None, problem: str = "unreadable", hint: str | None = None
    ) -> None:
        """Args: problem: value of the ProblemKind (cafcat.model) that this file is reported as."""
        super().__init__(message, path=path, hint=hint)
        self.problem = problem


class Unavailable(CafcatError):
    """A service or device did not answer; trying again may help."""

    kind = "unavailable"
    retryable = True


class StoreFailed(Unavailable):
    """A store could not take or give bytes: no space, I/O error, no permission."""

    kind = "store_failed"


class ServerFailed(StoreFailed):
    """The server of a store did not answer, or answered several times that it cannot work now.

    This concerns the whole store. Any other StoreFailed concerns one object.
    """


class TemporaryFileFailed(StoreFailed):
    """No room for a temporary file of our own: nothing that is stored is at fault."""


class OutputFailed(Unavailable):
    """A file could not be written where the user wants it: no space, no permission."""

    kind = "output_failed"


class AccessDenied(CafcatError):
    """A service does not accept our credentials."""

    kind = "credentials"


class CatalogUnavailable(Unavailable):
    """The database cannot be reached or started, or refused us."""

    kind = "catalog_unavailable"


class CatalogLocked(CatalogUnavailable):
    """Another session held a lock of the catalog for too long. Nothing was changed."""

    kind = "locked"


class CatalogOutdated(CafcatError):
    """The database has no cafcat schema, or one of another revision."""

    kind = "catalog_revision"


class Locked(CafcatError):
    """Somebody else holds the lock or lease."""

    kind = "locked"
    retryable = True
