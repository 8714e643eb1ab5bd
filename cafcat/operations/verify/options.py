"""Options of `verify`."""

import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated

from cafcat.errors import InvalidInput
from cafcat.model import VerifyLevel
from cafcat.support.arguments import parse_duration, parse_percent
from cafcat.support.parameters import Argument, Flag, FollowSymlinks, OnlyInStore, UnpackTars, folder_flag

__all__ = ["VerifyOptions"]


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """Check chunks, copies or sources against the catalog, and store the results in the catalog.

    The results are rows of `verify_runs`, `verifications` and `findings`. An interrupted verify continues when it
    is called again with the same options. Damage is not an error: the report has it.

    Attributes:
        sources: At level source: the sources, named as for `ingest`.
        level: How closely to check: only the catalog, the index of each chunk, all bytes, or the sources.
        sample: At level index and data: check only this share of the chunks, above 0 and up to 1.
        older_than: Check only objects without a good result of at least this level in the last so many seconds.
        chunks: Uuids of chunks, or their first 8 digits or more.
        prefix: Only chunks that have, or had, a file below this folder of the catalog, or of this name. At level
            source: the prefix that `ingest` was called with.
        store: Only objects in this store: a name, a URL or a folder.
        follow_symlinks: As `ingest` was called.
        unpack_tars: As `ingest` was called.
        restart: Begin again, even if an earlier verify with these options was interrupted.
        jobs: Number of objects to check at once; None for one per processor, if there is enough to do.
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
            "Only check chunks without a good result for this long, such as 90d.",
            "TIME",
            parse_duration,
        ),
    ] = None
    chunks: Annotated[Sequence[str], Flag("--chunk", "Only check this chunk. Repeatable.", "UUID")] = ()
    prefix: Annotated[
        str,
        folder_flag("Only check chunks with files below this folder; for sources, the --prefix of their ingest."),
    ] = ""
    store: Annotated[str | None, OnlyInStore()] = None
    follow_symlinks: FollowSymlinks = False
    unpack_tars: UnpackTars = True
    restart: Annotated[bool, Flag("--restart", "Begin again, even if the same verify was interrupted.")] = False
    jobs: Annotated[
        int | None, Flag("--jobs -j", "Number of chunks to check at once. Default: one per processor.", "N")
    ] = None

    def check(self) -> None:
        """Raise InvalidInput for options that contradict each other, or are out of range."""
        level = VerifyLevel(self.level)
        single = self.chunks or self.store or self.older_than is not None or self.sample is not None
        if bool(self.sources) is not (level is VerifyLevel.SOURCE):
            hint = "cafcat verify --level source SRC..."
            raise InvalidInput("sources are for level source, and only for that", hint=hint)
        if level not in (VerifyLevel.INDEX, VerifyLevel.DATA) and single:
            raise InvalidInput(f"level {level} is not for single chunks", hint="use level index or data")
        if level is VerifyLevel.CATALOG and self.prefix:
            raise InvalidInput("level catalog looks at all of the catalog", hint="leave the prefix out")
        if self.sample is not None and not 0 < self.sample <= 1:
            raise InvalidInput(f"a sample is more than nothing and at most all, not {self.sample}")
        if self.jobs is not None and self.jobs < 1:
            raise InvalidInput(f"--jobs must be at least 1, not {self.jobs}")
