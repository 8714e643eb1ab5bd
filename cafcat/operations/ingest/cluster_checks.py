"""Checks before work by many workers: whether each reaches the catalog, the stores, sources and folders."""

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

from cafcat import __version__
from cafcat.errors import CafcatError, InvalidInput, Unavailable
from cafcat.operations.ingest.options import IngestOptions
from cafcat.operations.joining import has_joined
from cafcat.operations.opened_sources import source_opener
from cafcat.operations.reachable_stores import ReachableStores
from cafcat.progress import Progress
from cafcat.reading.output_errors import disk_errors
from cafcat.session import Session
from cafcat.settings.sharing import SharedSettings
from cafcat.sources.registry import scheme_of
from cafcat.support.executors import EveryWorker, is_local, shown_error

__all__ = ["check_cluster", "probe"]

_PROBE_SECONDS: Final = 120
"""How long a worker may take to start and answer, in seconds, if the executor has no way to ask each worker."""
_MEND: Final = "mend the worker, and run the same command again"
"""The hint for a problem of a worker whose error has no hint."""


class _Question(NamedTuple):
    """A question to a worker: does it reach this catalog, these stores, the sources of an ingest, and a file?"""

    settings: SharedSettings
    stores: Sequence[str]
    catalog: str
    options: IngestOptions | None
    file: Path | None


def check_cluster(
    session: Session,
    executor: Executor,
    stores: Sequence[str],
    *,
    share_password: bool,
    options: IngestOptions | None = None,
    folder: Path | None = None,
) -> None:
    """Refuse a cluster that cannot do the work. Each worker is asked, if the executor has a way to do so.

    Args:
        session: The session.
        executor: The executor.
        stores: URLs of the stores that are read or written. This process must reach them.
        share_password: True to send the URL of the database even if it has a password.
        options: Options of an ingest, without the executor, whose sources the workers must reach, too; None for
            other operations.
        folder: An existing folder into which the workers write; None for none. This process must be able to write
            there, too.

    Raises:
        InvalidInput: The database is the embedded one, or a source, folder or store exists on this host only.
        Unavailable: A worker has another version of cafcat, or cannot reach the catalog, the store, a source or the
            folder.
        OutputFailed: This process cannot write into the folder.
    """
    if options is not None and "-" in [options.files_from, *options.sources]:
        raise InvalidInput("the workers cannot read the standard input of this process")
    if not is_local(executor):
        _check_reachable(session, options, folder)
    shared = SharedSettings.of(session.settings, with_password=share_password or is_local(executor))
    catalog = session.catalog.identities.of("").catalog
    with _marked(folder) as file:
        answers = _asked(executor, _Question(shared, stores, str(catalog), options, file))
    problems = [(name, error) for name, error in answers.items() if error is not None]
    if problems:
        name, error = problems[0]
        own_hint = error.hint if isinstance(error, CafcatError) else None
        others = f" ({len(problems) - 1} other workers have problems, too)" if len(problems) > 1 else ""
        raise Unavailable(
            f"worker {name}: {_without_hint(error)}{others}", hint=f"nothing was done; {own_hint or _MEND}"
        )


@contextmanager
def _marked(folder: Path | None) -> Iterator[Path | None]:
    """Make an empty file in a folder, by which workers see that they have the same folder. Yield its path."""
    if folder is None:
        yield None
        return
    file = folder / f".cafcat-probe-{uuid4()}"
    with disk_errors(str(folder)):
        file.touch()
    try:
        yield file
    finally:
        with disk_errors(str(folder)):
            file.unlink(missing_ok=True)


def _check_reachable(session: Session, options: IngestOptions | None, folder: Path | None) -> None:
    if session.settings.database_url is None:
        hint = "give a database that all hosts reach with --database-url"
        raise InvalidInput("other hosts cannot reach the embedded database", hint=hint)
    if folder is not None and not folder.is_absolute():
        raise _relative(str(folder))
    if options is None:
        return
    for source in [*options.sources, *([options.files_from] if options.files_from else [])]:
        typed = os.fspath(source)
        if scheme_of(typed) is None and not os.path.isabs(typed) and not typed.startswith("file:"):
            raise _relative(typed)


def _relative(typed: str) -> InvalidInput:
    hint = "name it by its absolute path, which must be the same on all hosts"
    return InvalidInput(f"the workers have other working folders, and {typed!r} is relative", hint=hint)


def _without_hint(error: BaseException) -> str:
    text = shown_error(error)
    return text.removesuffix(f"; {error.hint}") if isinstance(error, CafcatError) else text


def _asked(executor: Executor, question: _Question) -> Mapping[str, BaseException | None]:
    """Return the problem of each asked worker by its name; None for a worker without a problem."""
    if not isinstance(executor, EveryWorker):
        try:
            future = executor.submit(probe, question, __version__)
            return dict([future.result(_PROBE_SECONDS)])
        except Exception as error:  # noqa: BLE001 - engines raise errors of their own
            return {"of the executor": error}
    answers: Mapping[str, Any] = executor.run_on_each_worker(probe, question, __version__)
    if not answers:
        raise Unavailable("the cluster has no workers", hint="start workers, and run the same command again")
    return {name: answer if isinstance(answer, BaseException) else answer[1] for name, answer in answers.items()}


def probe(question: _Question, version: str) -> tuple[str, CafcatError | None]:
    """Return the host name of this worker, and why it cannot do the work; None if it can.

    Args:
        question: What the worker has to reach.
        version: Version of cafcat that the calling process has.
    """
    host = socket.gethostname()
    if version != __version__:
        return host, Unavailable(f"has cafcat {__version__}, and the command has {version}")
    try:
        with closing(Session.open(question.settings.load(), Progress())) as session:
            _check(session, question)
    except CafcatError as error:
        return host, error
    return host, None


def _check(session: Session, question: _Question) -> None:
    """Raise a CafcatError if this worker does not reach something of the question."""
    catalog = session.catalog.identities.of("").catalog
    if str(catalog) != question.catalog:
        raise Unavailable(f"reaches another catalog, {catalog}")
    for url in question.stores:
        if session.catalog.identities.of(url).store is None:
            _open(session, url)  # such a store has only adopted archives, and no marker
        elif not has_joined(session, session.stores[url]):
            raise Unavailable(f"does not see the store {url}: it finds no marker of the catalog there")
    if question.options is not None:
        source_opener(session, question.options).open(question.options.sources)
    if question.file is not None and not question.file.exists():
        raise Unavailable(f"has another folder at {question.file.parent}")


def _open(session: Session, url: str) -> None:
    try:
        ReachableStores(session).open(url)
    except Unavailable as error:
        error.hint = None  # it names commands for a lost store, but the coordinator reaches this one
        raise
