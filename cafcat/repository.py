"""The repository: one catalog and its stores, with a method for every operation."""

import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    BinaryIO,
    Concatenate,
    ParamSpec,
    TypeVar,
    cast,
    get_args,
    get_origin,
)

from cafcat import __version__
from cafcat.errors import InvalidInput
from cafcat.model import RetiredLocation
from cafcat.operations.adopt.options import AdoptOptions
from cafcat.operations.adopt.report import AdoptReport
from cafcat.operations.audit import audited
from cafcat.operations.backup.options import BackupOptions
from cafcat.operations.backup.report import BackupReport
from cafcat.operations.compare.options import CompareOptions
from cafcat.operations.compare.report import CompareReport
from cafcat.operations.copy.options import CopyOptions
from cafcat.operations.copy.report import CopyReport
from cafcat.operations.doctor.options import DoctorOptions
from cafcat.operations.doctor.report import DoctorReport
from cafcat.operations.estimate.options import EstimateOptions
from cafcat.operations.estimate.report import EstimateReport
from cafcat.operations.ingest.options import IngestOptions
from cafcat.operations.prune.options import PruneOptions
from cafcat.operations.prune.report import PruneReport
from cafcat.operations.rebuild.options import RebuildOptions
from cafcat.operations.rebuild.report import RebuildReport
from cafcat.operations.recover.options import RecoverOptions
from cafcat.operations.recover.report import RecoverReport
from cafcat.operations.repack.options import RepackOptions
from cafcat.operations.repack.report import RepackReport
from cafcat.operations.repair.options import RepairOptions
from cafcat.operations.repair.report import RepairReport
from cafcat.operations.restore.options import RestoreOptions
from cafcat.operations.restore.report import RestoreReport
from cafcat.operations.rm.options import RmOptions
from cafcat.operations.rm.report import RemoveReport
from cafcat.operations.undelete.options import UndeleteOptions
from cafcat.operations.undelete.report import UndeleteReport
from cafcat.operations.verify.options import VerifyOptions
from cafcat.operations.verify.report import VerifyReport
from cafcat.operations.write.options import WriteOptions
from cafcat.packed_files import PackedFiles
from cafcat.progress import Warnings
from cafcat.reports import IngestReport
from cafcat.session import Session, output_of
from cafcat.settings.settings import Settings
from cafcat.support.traffic import TRAFFIC

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from cafcat.catalog.files.log_units import StoredUnit
    from cafcat.catalog.limits import LimitRow
    from cafcat.catalog.stores.stores import StoreRow
    from cafcat.logs.searching import LogSearch
    from cafcat.operations.backup.run import FoundBackup
    from cafcat.operations.export.run import ExportReport
    from cafcat.operations.stores.check import CheckedStore
    from cafcat.operations.stores.lose import StoreLossReport
    from cafcat.operations.stores.migrate import MigrateReport
    from cafcat.operations.stores.move import StoreMoveReport
    from cafcat.operations.write.run import Writer
    from cafcat.reading.outputs import Output
    from cafcat.snapshots.writing import SnapshotReport

__all__ = ["Repository", "open"]

_Options = ParamSpec("_Options")
_Given = TypeVar("_Given")
_Report = TypeVar("_Report")


def open(
    settings: Settings | None = None, *, warn: Callable[[str], object] | None = None, **overrides: Any
) -> "Repository":
    """Return a Repository, which connects to the database at the first call that needs the database.

    That call also starts an embedded database.

    Args:
        settings: The settings; None for those of environment, cafcat.toml and defaults.
        warn: Called with each warning that a copy is read, that a lock of the catalog is waited for, or that an S3
            server fails a check. None: these warnings are logged to the logger "cafcat". All other warnings go to
            the Progress of `with_progress`; without one, they are dropped.
        **overrides: Single settings by name: home, database_url, read_database_url, max_staleness, store,
            target_size, upload_memory, read_requests, prepared_statements, lock_timeout, bandwidth,
            tracing; also config and profile (`Settings.load`).

    Raises:
        InvalidInput: A setting is invalid, or both settings and overrides are given.
    """
    if settings is not None and overrides:
        raise InvalidInput("give either settings or overrides, not both")
    return Repository(settings or Settings.load(**overrides), warn)


def _operation(
    options: Callable[_Options, object], report: type[_Report]
) -> "Callable[Concatenate[Repository, _Options], _Report]":
    """Return a method of Repository that runs an operation. Its parameters are the fields of the options.

    Args:
        options: Class of the options, a dataclass in the module `options` of the operation's package. Beside that
            module is the module `run` with the function `run(session, options)`, which the method calls.
        report: Class of the report, which the method returns.
    """
    module = options.__module__.removesuffix("options") + "run"

    def method(self: "Repository", given: object) -> _Report:
        run = cast(Callable[[Session, object], _Report], import_module(module).run)
        with TRAFFIC.bandwidth(self.settings.bandwidth):
            return run(self.session, given)

    method.__name__ = module.split(".")[-2]
    summary = inspect.cleandoc(options.__doc__ or "").partition("\n\nAttributes:")[0]
    method.__doc__ = f"{summary}\n\nReturns:\n    The report, of type {report.__name__}."
    method.__annotations__["return"] = report
    return _with_fields_of(options)(method)


def _with_fields_of(
    options: Callable[_Options, _Given],
) -> "Callable[[Callable[[Repository, _Given], _Report]], Callable[Concatenate[Repository, _Options], _Report]]":
    """Return a decorator for a method that takes options. The fields of the options become its parameters.

    They are also described in the docstring of the method, before "Returns" or "Raises".

    Args:
        options: Class of the options, a dataclass.
    """

    def decorate(
        function: "Callable[[Repository, _Given], _Report]",
    ) -> "Callable[Concatenate[Repository, _Options], _Report]":
        def method(self: "Repository", /, *args: _Options.args, **kwargs: _Options.kwargs) -> _Report:
            return function(self, options(*args, **kwargs))

        method.__name__ = function.__name__
        method.__qualname__ = f"Repository.{method.__name__}"
        fields = inspect.cleandoc(options.__doc__ or "").partition("Attributes:")[2]
        method.__doc__ = re.sub(
            r"^(?=(Returns|Raises):)",
            lambda _: f"Args:{fields}\n\n",
            inspect.cleandoc(function.__doc__ or ""),
            count=1,
            flags=re.MULTILINE,
        )
        method.__signature__ = _signature(options, function.__annotations__["return"])  # type: ignore[attr-defined]
        return method

    return decorate


def _signature(options: Callable[..., object], returned: object) -> inspect.Signature:
    """Return the signature of a method whose parameters are the fields of options, with their bare types.

    Args:
        options: Class of the options.
        returned: Annotation of the returned value.
    """
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    parameters = [
        parameter.replace(annotation=get_args(parameter.annotation)[0])
        if get_origin(parameter.annotation) is Annotated
        else parameter
        for parameter in inspect.signature(options).parameters.values()
    ]
    return inspect.Signature([own, *parameters], return_annotation=returned)


class Repository(PackedFiles):
    """One catalog and its stores, with a method for every operation.

    Use a repository as a context manager, or call `close`. To follow an operation or to stop it, call it on
    `with_progress(progress)`.
    """

    ingest = _operation(IngestOptions, IngestReport)
    estimate = _operation(EstimateOptions, EstimateReport)
    adopt = _operation(AdoptOptions, AdoptReport)
    verify = _operation(VerifyOptions, VerifyReport)
    repair = _operation(RepairOptions, RepairReport)
    copy = _operation(CopyOptions, CopyReport)
    repack = _operation(RepackOptions, RepackReport)
    recover = _operation(RecoverOptions, RecoverReport)
    prune = _operation(PruneOptions, PruneReport)
    rm = _operation(RmOptions, RemoveReport)
    undelete = _operation(UndeleteOptions, UndeleteReport)
    rebuild = _operation(RebuildOptions, RebuildReport)
    compare = _operation(CompareOptions, CompareReport)
    backup = _operation(BackupOptions, BackupReport)
    restore = _operation(RestoreOptions, RestoreReport)
    doctor = _operation(DoctorOptions, DoctorReport)

    @_with_fields_of(WriteOptions)
    def writer(self, options: WriteOptions) -> "Writer":
        """Return a writer, which packs files whose contents a program gives. Use it as a context manager.

        Chunks are made and committed as by an ingest.

            with repository.writer() as writer:
                writer.add("notes/today.txt", b"packed")

        Raises:
            InvalidInput: One of the options is not valid.
            Unsupported, NotInstalled: Chunks of the format cannot be written here.
        """
        from cafcat.operations.write.run import Writer

        return Writer(self.session, options)

    def pause_run(self, run_id: int) -> None:
        """Pause a running ingest. Within 5 seconds, its processes begin no further file, until it is resumed.

        Its open chunks stay open. An ingest that ends, or is ended by its user, commits them.

        Args:
            run_id: Number of the run.

        Raises:
            NotFound: No running ingest has this number.
        """
        from cafcat.operations.limits import set_paused

        with audited(self.session, "runs pause", {"run": run_id}):
            set_paused(self.session, run_id, is_paused=True)

    def resume_run(self, run_id: int) -> None:
        """Let a paused ingest go on.

        Args:
            run_id: Number of the run.

        Raises:
            NotFound: No running ingest has this number.
        """
        from cafcat.operations.limits import set_paused

        with audited(self.session, "runs resume", {"run": run_id}):
            set_paused(self.session, run_id, is_paused=False)

    def limits(self) -> "Sequence[LimitRow]":
        """Return the limits of requests and bytes, in the order of their URLs."""
        return self.session.catalog.limits.all()

    def set_limit(
        self,
        url: str,
        *,
        requests: int | None = None,
        in_flight_bytes: int | None = None,
        bytes_per_second: int | None = None,
    ) -> str:
        """Limit the requests and bytes of a store or source, for all processes together.

        Running operations keep to the limit within 5 seconds. An earlier limit for the URL is replaced.

        Args:
            url: URL of a bucket or server, or of a folder in it; or the name of a store.
            requests: Most requests at the same time; None for no limit.
            in_flight_bytes: Most bytes of requests at the same time; None for no limit.
            bytes_per_second: Most bytes per second; None for no limit.

        Returns:
            The URL of the limit.

        Raises:
            InvalidInput: No limit is given, one is below 1, or the URL is that of a folder of this machine.
        """
        from cafcat.catalog.limits import Amounts
        from cafcat.operations.limits import set_limit

        amounts = Amounts(requests, in_flight_bytes, bytes_per_second)
        with audited(self.session, "limits set", {"url": url, **amounts._asdict()}):
            return set_limit(self.session, url, amounts)

    def remove_limit(self, url: str) -> str:
        """Remove a limit, and return its URL.

        Args:
            url: URL of the limit, or the name of a store.

        Raises:
            NotFound: There is no limit for this URL.
        """
        from cafcat.operations.limits import remove_limit

        with audited(self.session, "limits remove", {"url": url}):
            return remove_limit(self.session, url)

    def removed(self, prefix: str = "") -> Iterator[RetiredLocation]:
        """Yield the removed files that `undelete` can bring back, in the order of paths.

        Args:
            prefix: A folder of the catalog, or a file; "" for all removed files.

        Raises:
            InvalidInput: No folder of the catalog can have this name.
        """
        from cafcat.operations.undelete.run import removed

        return removed(self.session, prefix)

    def backups(self, store: str | None = None) -> "Sequence[FoundBackup]":
        """Return the backups of catalogs in a store, the oldest first.

        Args:
            store: Name, URL or folder of the store; None for the store of the settings. A word that names no store
                is a folder.

        Raises:
            InvalidInput, Unsupported: The text is not a valid URL or path, or no kind of store has its scheme.
            NotFound: The bucket, or the given folder, does not exist.
            AccessDenied, StoreFailed: The store cannot be listed.
        """
        from cafcat.operations.backup.run import find_backups

        return find_backups(self.session, store)

    def snapshot(
        self, output: str | os.PathLike[str], prefix: str = "", *, overwrite: bool = False
    ) -> "SnapshotReport":
        """Write a snapshot: one file with the locations of all files below a folder, as of one moment.

        With it, `cafcat.Snapshot` reads these files without the catalog. The output appears complete and durable,
        or not at all.

        Args:
            output: Name of the file to write.
            prefix: A folder of the catalog, or a file; "" for all files.
            overwrite: True to replace an existing file.

        Returns:
            Time of the snapshot, number and size of its files, number of their chunks, and size of the output.

        Raises:
            NotFound: The catalog has no such folder or file.
            Conflict: The output exists and overwrite is false, or is a folder.
            InvalidInput: The output is a device, pipe or socket, or the file system cannot have its name.
            OutputFailed, CatalogUnavailable, CatalogOutdated: The output or the database cannot be used.
        """
        from cafcat.snapshots.writing import write_snapshot

        session = self.session
        try:
            target = output_of(session.settings, output, overwrite=overwrite)
            return write_snapshot(session.catalog, prefix, target, version=__version__, progress=session.progress)
        finally:
            session.progress.end()

    def export(
        self,
        prefixes: Iterable[str],
        output: str | os.PathLike[str] | BinaryIO,
        *,
        format: str | None = None,
        overwrite: bool = False,
    ) -> "ExportReport":
        """Write all files below folders of the catalog, as of one moment, into one archive, under the same paths.

        Every file is compared with its checksum. If a chunk's own object cannot be read, a copy is read. A file
        appears complete and durable, or not at all: a single file that cannot be read ends the export.

        Args:
            prefixes: Folders and files of the catalog, and patterns as in `glob`, which also stand for everything
                below the folders that they match; an empty list for all files.
            output: Name of the archive to write; or a binary file object, which may be a pipe. It is not closed,
                and has an archive without its end after an error. A CAR cannot be written into it.
            format: Format of the archive: "tar", "zip", or a format of chunks. None for the format that belongs to
                the suffix of the output's name.
            overwrite: True to replace an existing file.

        Returns:
            Path and format of the archive, time of the export, number and size of the files, and size of the
            archive.

        Raises:
            NotFound: The catalog has no file for one of the names.
            Corrupt, StoreFailed: A file can be read neither from its chunk nor from a copy.
            Conflict: The output exists and overwrite is false, or is a folder; or an object was replaced while
                it was read.
            Refused: The format cannot store a file, because of its name or size.
            Unsupported, NotInstalled, InvalidInput, OutputFailed, AccessDenied, Unavailable, CatalogUnavailable,
                CatalogOutdated: The format, the output, a store or the database cannot be used.
        """
        from cafcat.operations.export.run import export_archive
        from cafcat.operations.names import check_names

        target: Output | BinaryIO
        if isinstance(output, str | os.PathLike):
            target = output_of(self.session.settings, output, overwrite=overwrite)
        else:
            target = output
        names = list(check_names(prefixes))
        return export_archive(self.session, self._reader, names, target, format)

    def units(self, prefix: str = "") -> "Iterator[StoredUnit]":
        """Yield the log files in the archives of logs that the catalog has, in the order of their names.

        Args:
            prefix: A folder of log files, or one log file, by its name in the archives; "" or "." for all.
        """
        from cafcat.logs.searching import folder_of_logs

        return self.session.catalog.logs.below(folder_of_logs(prefix))

    def search(
        self,
        query: str,
        prefix: str = "",
        *,
        from_ms: int | None = None,
        to_ms: int | None = None,
        ignore_case: bool = False,
        projection: Sequence[str] = (),
        warn: Callable[[str], object] | None = None,
    ) -> "LogSearch":
        """Search the records in archives of logs.

        Archives without log files below `prefix`, or without records between the times, are not opened.

        Args:
            query: A query of clp-s, in the Kibana query language.
            prefix: A folder of log files, or one log file; "" for all.
            from_ms: Earliest time of a record, inclusive, in milliseconds since 1970; None for no limit.
            to_ms: Latest time of a record, inclusive, in milliseconds since 1970; None for no limit.
            ignore_case: True to ignore the case of letters.
            projection: Columns of the records that are returned; empty for all columns.
            warn: Called with each warning that a copy of an archive is searched, that an archive is damaged, that
                no record can match the query, or that archives have no times. None: the Progress of this repository
                receives these warnings.

        Returns:
            The search, which begins when its `records()` are iterated. Afterwards its `report` has the totals.

        Raises:
            InvalidInput: The query, the times or the columns are invalid.
            NotInstalled: The program clp-s is missing.
        """
        from cafcat.logs.searching import LogSearch, SearchQuery

        progress = self.session.progress if warn is None else Warnings(warn)
        asked = SearchQuery.of(query, prefix, from_ms, to_ms, ignore_case=ignore_case, projection=projection)
        return LogSearch(self.session.catalog, self.session.stores, asked, progress)

    def check_store(self, store: str) -> "CheckedStore":
        """Find out which features a store has, by writing small objects, which are removed afterwards.

        If the catalog has the store, the failed checks are stored in the catalog. An embedded database that does
        not exist yet is not created for that.

        Args:
            store: A name in the configuration or in the catalog, a URL, or a folder.

        Raises:
            NotFound: There is no such bucket.
            AccessDenied: The store rejects the credentials.
            StoreFailed: The store does not answer.
            InvalidInput, Unsupported: The text is not a valid URL or path, or no kind of store has its scheme.
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        from cafcat.operations.stores.check import check_store

        return check_store(self.settings, store)

    def stores(self) -> "Sequence[StoreRow]":
        """Return all stores of the catalog, in the order of their first use."""
        from cafcat.operations.stores import rows

        return rows.stores(self.session)

    def add_store(self, name: str, url: str) -> "StoreRow":
        """Give a store a name in the catalog. The catalog gets a row for the store, if it has none.

        Args:
            name: The name.
            url: A URL, a folder, or a name in the configuration.

        Returns:
            The row of the store.

        Raises:
            InvalidInput: The name is not valid for a store, or `url` is not a valid URL or path.
            Unsupported: No kind of store has the scheme of `url`.
            Conflict: Another store has the name, or the store has another name.
            Unavailable: The store is not where its URL points, for example because its disk is not mounted.
            StoreFailed, AccessDenied: The store does not answer, or refuses the request.
        """
        from cafcat.operations.stores import rows

        with audited(self.session, "store add", {"name": name, "url": url}):
            return rows.add_store(self.session, name, url)

    def rename_store(self, store: str, name: str) -> "StoreRow":
        """Give a store of the catalog another name.

        Args:
            store: A store of the catalog: its name, URL or folder.
            name: The new name.

        Returns:
            The changed row of the store.

        Raises:
            NotFound: The catalog has no such store.
            InvalidInput: The name is not valid for a store.
            Conflict: Another store has the name.
        """
        from cafcat.operations.stores import rows

        with audited(self.session, "store rename", {"store": store, "name": name}):
            return rows.rename_store(self.session, store, name)

    def remove_store(self, store: str) -> "StoreRow":
        """Remove a store from the catalog. Its objects stay.

        If the history of deleted objects refers to the store, its row stays, and loses its name.

        Args:
            store: A store of the catalog: its name, URL or folder.

        Returns:
            The last row of the store.

        Raises:
            NotFound: The catalog has no such store.
            Conflict: The catalog refers to objects in the store, or journal records still have to be written there.
                Or the row has to stay, and has no name.
        """
        from cafcat.operations.stores import rows

        with audited(self.session, "store rm", {"store": store}):
            return rows.remove_store(self.session, store)

    def lose_store(self, store: str, *, dry_run: bool = False) -> "StoreLossReport":
        """Give up a store whose objects are lost for good.

        Chunks with a copy in another store are read from there from now on. The live files of the other chunks are
        removed from the catalog. Nothing has to be written to the store, or removed there, any more.

        Args:
            store: A store of the catalog: its name, URL or folder.
            dry_run: Count only; change nothing.

        Raises:
            NotFound: The catalog has no such store.
            Conflict: The store still has an object of the catalog; or its rows changed meanwhile.
            AccessDenied: The store refuses the request, so that nobody can see whether it is lost.
            Locked: A command writes to the store.
            CatalogUnavailable, CatalogOutdated: The database does not answer, or has another schema.
        """
        from cafcat.operations.stores.lose import lose_store

        with audited(self.session, "store rm", {"store": store, "lost": True, "dry_run": dry_run}):
            return lose_store(self.session, store, dry_run=dry_run)

    def configured_as(self, url: str) -> str | None:
        """Return the name of the setting that refers to the store with this URL.

        Returns:
            "stores.NAME" for a named store of the configuration, "store" for the store of new chunks; None if no
            setting refers to the store.
        """
        from cafcat.operations.stores import rows

        return rows.configured_as(self.session, url)

    def configured_name(self, store: str) -> str | None:
        """Return the name of a store, if the setting "store" selects this store by its name; else None.

        Args:
            store: A store of the catalog: its name, URL or folder.

        Raises:
            NotFound: The catalog has no such store.
        """
        from cafcat.operations.stores import rows

        return rows.configured_name(self.session, store)

    def move_store(
        self, old: str, new: str, *, look_at_all: bool = False, dry_run: bool = False
    ) -> "StoreMoveReport":
        """Enter the new URL of a store into the catalog. The user has moved the objects of the store already.

        At the new URL, this checks the marker of this catalog, a hundred random objects, and a hundred random
        journal records; or all objects and records.

        Args:
            old: A store of the catalog: its name, URL or folder.
            new: The new place: a name, a URL or a folder.
            look_at_all: True to check every object and journal record.
            dry_run: True to check only, and change nothing.

        Raises:
            StoreFailed: Objects are missing at the new URL, or have other sizes, or the marker there is missing or
                that of another store. The catalog is unchanged.
            Locked: Another command is writing to the store, or has locked its rows for 30 seconds.
            Conflict: The catalog has chunks or copies at the new URL already, or a backup is being written there.
            NotFound: The catalog has no such store.
            InvalidInput: Both URLs are the same, or `new` is not a valid URL or path.
            Corrupt, Unsupported: The marker at the new URL is damaged, or a later version of cafcat wrote it; or no
                kind of store has the scheme of `new`.
            AccessDenied: The store at the new URL refuses the request.
        """
        from cafcat.operations.stores.move import move_store

        with audited(self.session, "store move", {"old": old, "new": new, "dry_run": dry_run}):
            return move_store(self.session, old, new, look_at_all=look_at_all, dry_run=dry_run)

    def migrate_store(
        self,
        old: str,
        new: str,
        *,
        join_store: bool = False,
        share_password: bool = False,
        executor: "Executor | None" = None,
    ) -> "MigrateReport":
        """Copy all chunks, copies and backups of a store to another store, and read them from there.

        Each object is read back and compared with its checksum. Then the catalog points to the new store. `prune`
        removes old chunks and copies after its grace period; old backups are removed at once. Adopted archives stay
        where they are. An interrupted migration continues when it is called again. An object that fails is
        reported; the others are migrated.

        Args:
            old: A store of the catalog: its name, URL or folder.
            new: The new store: a name, a URL or a folder.
            join_store: True to write into a store that has chunks of another catalog.
            share_password: With an executor: True to send the URL of the database to the workers even if it has a
                password.
            executor: Migrates chunks on the workers of this executor, on any number of hosts. None: this process
                migrates them.

        Raises:
            NotFound: The catalog has no such store.
            InvalidInput: Both are one store, or one place under two names; or `new` is not a valid URL or path, or
                is a bare word that names neither a store nor a folder.
            Conflict: The new store has chunks of another catalog, and join_store is false.
            Locked: Another catalog began to write into the new store at the same moment, and join_store is false.
            Unavailable, StoreFailed, AccessDenied: One of the stores cannot be used.
        """
        from cafcat.operations.stores.migrate import migrate_store

        return migrate_store(
            self.session, old, new, join_store=join_store, share_password=share_password, executor=executor
        )
