"""The arguments and flags of `cafcat verify` and `Repository.verify`."""

import os
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated
from uuid import UUID

from cafcat.errors import InvalidInput
from cafcat.model import VerifyLevel
from cafcat.support.arguments import member_of, parse_duration, parse_percent, parse_text
from cafcat.support.parameters import (
    Argument,
    Flag,
    FollowSymlinks,
    OnlyInStore,
    SharePassword,
    UnpackTars,
    folder_flag,
)

__all__ = ["VerifyOptions"]


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """Check the rows of the catalog, chunks and copies, or sources, and store the results in the catalog.

    The results are rows of `verify_runs`, `verifications` and `findings`. An interrupted verify continues when it
    is called again with the same options. Damage is not raised as an error: the report counts it.

    Attributes:
        sources: At level source: the folders, files and URLs to compare, named as for `ingest`.
        level: What to check: only the rows of the catalog, the index of each chunk, all bytes, or sources.
        sample: At levels index and data: check only this random share of the chunks and copies, above 0 and up
            to 1; None to check all.
        older_than: At levels index and data: leave out each object that had a good result, at this level or level
            data, in the last `older_than` seconds and no bad one since. None: leave out none.
        chunks: Check only these chunks and their copies: uuids, or at least the first 8 digits of each; empty for
            all.
        prefix: Check only chunks that have, or had, a file below this folder of the catalog, or of this name. At
            level source: the prefix that `ingest` was called with.
        store: Check only objects in this store: a name, a URL or a folder; None for all stores.
        include: At level source: the value that `ingest` was called with.
        exclude: At level source: the value that `ingest` was called with.
        follow_symlinks: At level source: the value that `ingest` was called with.
        unpack_tars: At level source: the value that `ingest` was called with.
        restart: Begin again, even if an earlier verify with these options was interrupted.
        jobs: At levels index and data: number of objects to check at once, each in a process of its own, at most
            64; None for one per processor, if there is enough to do. It has no effect with an executor.
        share_password: With an executor: send the URL of the database to the workers even if it has a password.
        executor: At levels index and data: check the objects on the workers of this executor, on any number of
            hosts. None: this process checks, with its own workers.
    """

    sources: Annotated[
        Sequence[str | os.PathLike[str]],
        Argument("SRC...", "Sources for --level source, named as for ingest."),
    ] = ()
    _: KW_ONLY
    level: Annotated[
        VerifyLevel | str,
        Flag("--level", "Check the rows of the catalog, the index of each chunk, all bytes, or the sources."),
    ] = VerifyLevel.INDEX
    sample: Annotated[
        float | None, Flag("--sample", "Only check this share of the chunks, such as 5%.", "SHARE", parse_percent)
    ] = None
    older_than: Annotated[
        int | None,
        Flag(
            "--older-than",
            "Leave out chunks that had a good result in this time, such as 90d.",
            "TIME",
            parse_duration,
        ),
    ] = None
    chunks: Annotated[Sequence[str | UUID], Flag("--chunk", "Only check this chunk. Repeatable.", "UUID")] = ()
    prefix: Annotated[
        str,
        folder_flag("Only check chunks with files below this folder; for sources, the --prefix of their ingest."),
    ] = ""
    store: Annotated[str | None, OnlyInStore()] = None
    include: Annotated[
        Sequence[str],
        Flag("--include", "Of sources, only compare files that match. Repeatable.", "PATTERN", parse_text),
    ] = ()
    exclude: Annotated[
        Sequence[str],
        Flag("--exclude", "Of sources, leave out files that match. Repeatable.", "PATTERN", parse_text),
    ] = ()
    follow_symlinks: FollowSymlinks = False
    unpack_tars: UnpackTars = True
    restart: Annotated[bool, Flag("--restart", "Begin again, even if the same verify was interrupted.")] = False
    jobs: Annotated[
        int | None,
        Flag(
            "--jobs -j",
            "Number of objects to check at once. Default: one per processor, if there is enough to do.",
            "N",
        ),
    ] = None
    share_password: SharePassword = False
    executor: Executor | None = field(default=None, compare=False)

    def check(self) -> None:
        """Check that the options do not contradict each other, and that their values are in range.

        Raises:
            InvalidInput: Two options contradict each other, one is out of range, or `level` is not the name of a
                level.
        """
        level = member_of(VerifyLevel, self.level, "level")
        single = self.chunks or self.store or self.older_than is not None or self.sample is not None
        if level is VerifyLevel.SOURCE and not self.sources:
            hint = "name the sources of the ingest: `cafcat verify --level source SRC...`"
            raise InvalidInput("level source compares files with the catalog, and no source was named", hint=hint)
        if self.sources and level is not VerifyLevel.SOURCE:
            hint = (
                "--prefix FOLDER checks the chunks of a folder of the catalog; --level source compares SRC with it"
            )
            raise InvalidInput(f"level {level} checks chunks, and accepts no source", hint=hint)
        of_source = self.include or self.exclude or self.follow_symlinks or not self.unpack_tars
        if level is not VerifyLevel.SOURCE and of_source:
            message = "--include, --exclude, --follow-symlinks and --no-unpack are for --level source only"
            raise InvalidInput(message, hint="leave them out, or use level source")
        if level not in (VerifyLevel.INDEX, VerifyLevel.DATA) and single:
            message = f"--chunk, --store, --older-than and --sample cannot be used at level {level}"
            raise InvalidInput(message, hint="leave them out, or use level index or data")
        if level not in (VerifyLevel.INDEX, VerifyLevel.DATA) and self.executor is not None:
            raise InvalidInput(f"level {level} is checked on one host", hint="leave the cluster out")
        if level is VerifyLevel.CATALOG and self.prefix:
            raise InvalidInput("level catalog always checks the whole catalog", hint="leave the prefix out")
        if self.sample is not None and not 0 < self.sample <= 1:
            raise InvalidInput(f"--sample must be more than 0 and at most 1 (100%), not {self.sample}")
        if self.jobs is not None and self.jobs < 1:
            raise InvalidInput(f"--jobs must be at least 1, not {self.jobs}")
