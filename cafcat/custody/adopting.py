"""Archives that are there already."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cafcat.custody.base import Keeper, ignore, never
from cafcat.errors import CafcatError, InvalidInput
from cafcat.model import OnConflict
from cafcat.progress import Progress
from cafcat.remote.access import is_s3

if TYPE_CHECKING:
    from cafcat.maintenance.adopt import AdoptedFile, AdoptReport, Found

__all__ = ["Adopting"]


class Adopting(Keeper):
    """adopt."""

    def adopt(
        self,
        archives: Sequence[str | os.PathLike[str]],
        *,
        prefix: str = "",
        on_conflict: OnConflict | str = OnConflict.FAIL,
        dry_run: bool = False,
        progress: Progress | None = None,
        on_adopted: "Callable[[AdoptedFile], object] | None" = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> "AdoptReport":
        """Enters archives of any format that are there already, where they are: files, or objects at s3:// URLs.
        Nothing is ever written to them, nor are they removed. Every entry is read once.

        prefix: a folder of the catalog, below which the names in the archives come. on_conflict: what becomes of a
        path that the catalog has. dry_run: reads all, changes nothing. on_adopted is told of each archive. When
        should_stop says True, which is asked between entries, or raises, nothing is left of the archive at hand.

        An archive that cannot be adopted, and an entry that cannot be read, costs only itself and is reported.
        Raises InvalidInput, CatalogUnavailable, CatalogOutdated.
        """
        from cafcat.maintenance.adopt import Adopt

        if isinstance(archives, str | bytes | os.PathLike):
            raise InvalidInput("archives are a list of names", hint=f"write [{os.fspath(archives)!r}]")
        progress = progress or Progress()
        adopt = Adopt(
            self._catalog,
            prefix=prefix.strip("/"),
            on_conflict=OnConflict(on_conflict),
            dry_run=dry_run,
            progress=progress,
            on_adopted=on_adopted or ignore,
            should_stop=should_stop or never,
        )
        try:
            for archive in [os.fspath(archive) for archive in archives]:
                try:
                    found = self._found(archive)
                except CafcatError as error:
                    adopt.fail(archive, error)
                else:
                    adopt.take(found)
        finally:
            progress.end()
        return adopt.report

    def _found(self, archive: str) -> "Found":
        """The store that an archive is in, as if it were one, and its key there. Raises InvalidInput."""
        from cafcat.maintenance.adopt import Found

        if is_s3(archive):
            from cafcat.remote.address import parse_s3

            bucket, key = parse_s3(archive)
            folder, _, name = key.rpartition("/")
            if not name:
                raise InvalidInput("not the URL of an object", hint="s3://bucket/folder/archive.car")
            return Found(self._store_of(f"s3://{bucket}/{folder}".rstrip("/")), name)
        path = os.path.abspath(archive.removeprefix("file://") if archive.startswith("file:///") else archive)
        return Found(self._store_of(Path(os.path.dirname(path)).as_uri()), os.path.basename(path))
