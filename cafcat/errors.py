"""The errors that cafcat raises for its callers: CafcatError and its subclasses.

The text of an error is one line: the failure and, where they apply, its place (path, chunk, byte), the expected and
the found value, and the next step for the user. Scripts read `kind` from the output of `--json`, so its values
never change. The package that uses another library translates that library's exceptions to these errors.
"""

import re
from typing import Any, ClassVar, Final

__all__ = [
    "AccessDenied",
    "CafcatError",
    "CatalogDenied",
    "CatalogLocked",
    "CatalogOutdated",
    "CatalogUnavailable",
    "Conflict",
    "Corrupt",
    "IndexMissing",
    "InvalidInput",
    "Locked",
    "NotConfirmed",
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
    "is_denied",
    "shown_path",
]

_SHOWN_CHARACTERS: Final = 200
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
"""Largest number of characters of a path that `shown_path` returns, without the "…" at the end."""


def shown_path(path: str) -> str:
    """Return a path for a message. A path of more than 200 characters is cut there, and "…" is appended."""
    return path if len(path) <= _SHOWN_CHARACTERS else path[:_SHOWN_CHARACTERS] + "…"


def _is_named_in(message: str, place: str) -> bool:
    """Return True if a message names a path or URL already, as a whole or as "no object NAME in FOLDER"."""
    if "/" not in place:
        return False  # a short name such as "a" could be any word of the message
    folder, _, name = place.rpartition("/")
    return place in message or ("/" in folder and f"{name} in {folder}" in message)


class CafcatError(Exception):
    """Base class of the errors that cafcat raises for its callers. Their text has message, place and hint.

    Attributes:
        kind: Name of the kind of error, for scripts. The name never changes. Several classes can share a name.
        retryable: True if the cause may pass on its own, so that the same call may succeed later.
        message: The failure, in one line, without place and hint.
        path: Name of the file in its catalog or archive, or path on disk, if the error is about a file; else None.
        chunk: The chunk or other object of a store that the error is about: UUID or chunks.id of the chunk, or key,
            path or URL of the object. None if the error is about neither.
        byte: Offset in the chunk or object, in bytes, if the error is about one place in it; else None.
        hint: The next step for the user; None if there is none.
        report: Report of the work that an ingest committed before the error; None of other operations.
    """

    kind: ClassVar[str] = "failure"
    retryable: ClassVar[bool] = False
    report: Any = None

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
        # With a path, the byte is the first one of the file in its chunk, not the damaged one.
        byte = "byte" if self.path is None else "from byte"
        places = [
            f"{name} {value!r}" if name == "path" else f"{name} {value}"
            for name, value in (("path", self.path), (_word_for(self.chunk), self.chunk), (byte, self.byte))
            if value is not None and not _is_named_in(self.message, str(value))
        ]
        text = self.message + (f" ({', '.join(places)})" if places else "")
        return f"{text}; {self.hint}" if self.hint else text


def _word_for(chunk: str | None) -> str:
    """Return the word for a chunk, or for another object: a path or URL whose last part is no UUID."""
    folder, _, name = (chunk or "").rpartition("/")
    return "object" if folder and not _UUID.match(name) else "chunk"


class NotFound(CafcatError):
    """The file, folder, chunk, store, bucket or object does not exist."""

    kind = "not_found"


class Conflict(CafcatError):
    """The request conflicts with the current state of the output, the store or the catalog.

    For example, a file, object or row with this name exists already, another command changed it meanwhile, or the
    store has chunks of another catalog.
    """

    kind = "conflict"


class Corrupt(CafcatError):
    """Bytes contradict their format, index or checksum. Reading a file whose chunk is missing raises this, too."""

    kind = "corrupt"


class NotConfirmed(CafcatError):
    """Work that destroys something was not done, because the user did not confirm it."""

    kind = "not_confirmed"


class Unsupported(CafcatError):
    """This version of cafcat cannot read or write data of this format or version. The data need not be damaged."""

    kind = "unsupported"


class NotInstalled(CafcatError):
    """A library or program is missing that one of cafcat's extras installs.

    This error does not mean that data is damaged or unsupported: without the library, cafcat cannot find that out.
    """

    kind = "not_installed"

    @staticmethod
    def remedy(extra: str) -> str:
        """Return the hint for a missing extra, such as "serve". cafcat is not on PyPI yet, so it names a clone."""
        return f"pip install '.[{extra}]' in a clone of cafcat"


class IndexMissing(Unsupported):
    """The companion file that holds an archive's index is missing.

    The archive itself could not be examined, so this error does not mean that it is damaged.
    """


class InvalidInput(CafcatError):
    """An argument or setting is invalid, such as a size, name or range, or arguments contradict each other."""

    kind = "invalid_input"


class Refused(InvalidInput):
    """An archive cannot store one file, because of the file's name or size, or because the archive is full.

    An ingest reports the file as a problem, and continues with the other files.
    """

    kind = "refused"


class SourceFailed(CafcatError):
    """A file of a source changed, vanished or could not be read.

    An ingest reports the file as a problem, and continues with the other files, unless the whole source failed.

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
    """A service, device or worker process did not answer, or could not do its work. Another try may succeed."""

    kind = "unavailable"
    retryable = True


class StoreFailed(Unavailable):
    """A store could not write, read or list objects: no space, I/O error, no permission in a folder."""

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
    """A service rejected the credentials, or does not allow the request with them; or no credentials were found."""

    kind = "credentials"


class CatalogUnavailable(Unavailable):
    """The database cannot be reached or started, refused the connection, or could not execute a statement.

    A statement fails for lack of space, or if it is cancelled or the connection is lost. If the
    connection is lost during a commit, the commit may have succeeded.
    """

    kind = "catalog_unavailable"


class CatalogDenied(AccessDenied, CatalogUnavailable):
    """The role of the database URL may not do this, or the server can only read."""

    retryable = False


class CatalogLocked(CatalogUnavailable):
    """Another session held a lock of the catalog for too long.

    The transaction that waited for the lock changed nothing. Earlier transactions of the command stay committed.
    """

    kind = "locked"


class CatalogOutdated(CafcatError):
    """The database has no cafcat schema, or the database or backup has another revision than this cafcat needs."""

    kind = "catalog_revision"


class Locked(CafcatError):
    """Another command holds the lock or lease that this command needs for a store, a chunk or the catalog."""

    kind = "locked"
    retryable = True


def is_denied(error: CafcatError | None) -> bool:
    """Return True if a server, or the operating system, denied this user the access to an object."""
    return isinstance(error, AccessDenied) or (error is not None and isinstance(error.__cause__, PermissionError))
