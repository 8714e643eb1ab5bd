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
from cafcat.sources.names import prefixed
from cafcat.stores.base import StoredFolder, has

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
        """Enters archives of any format that are there already, where they are: files, or objects at s3:// URLs; or
        folders and prefixes that are one archive in several files, each of which becomes a chunk. Nothing is ever
        written to them, nor are they removed. Every entry is read once.

        prefix: a folder of the catalog, below which the names in the archives come. on_conflict: what becomes of a
        path that the catalog has. dry_run: reads all, changes nothing. on_adopted is told of each archive. When
        should_stop says True, which is asked again and again, or raises, nothing is left of the archive at hand.

        An archive that cannot be adopted, and an entry that cannot be read, costs only itself and is reported.
        Raises InvalidInput, CatalogUnavailable, CatalogOutdated.
        """
        from cafcat.maintenance.adopt import Adopt

        if isinstance(archives, str | bytes | os.PathLike):
            raise InvalidInput("archives are a list of names", hint=f"write [{os.fspath(archives)!r}]")
        progress = progress or Progress()
        adopt = Adopt(
            self._catalog,
            prefix=prefixed(prefix, ""),
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
                    for part in found:
                        adopt.take(part)
        finally:
            progress.end()
        return adopt.report

    def _found(self, archive: str) -> "Sequence[Found]":
        """The store that an archive is in, as if it were one, and its key there; or the objects that are an archive
        together. Raises InvalidInput, and what finding out about a folder raises."""
        from cafcat.archives.opening import local_path, no_archive
        from cafcat.maintenance.adopt import Found

        if is_s3(archive):
            return self._in_bucket(archive)
        path = local_path(archive)
        if not os.path.isdir(path):
            return [Found(self._store_of(Path(os.path.dirname(path)).as_uri()), os.path.basename(path))]
        together = self._together(Path(path).as_uri())
        if together is None:
            raise no_archive(path)
        return together

    def _in_bucket(self, url: str) -> "Sequence[Found]":
        from cafcat.maintenance.adopt import Found
        from cafcat.remote.address import parse_s3

        bucket, key = parse_s3(url)
        folder, _, name = key.rpartition("/")
        store = self._store_of(f"s3://{bucket}/{folder}".rstrip("/"))
        together = None if name and has(store, name) else self._together(f"s3://{bucket}/{key}".rstrip("/"))
        if not name and together is None:
            raise InvalidInput("not the URL of an object", hint="s3://bucket/folder/archive.car")
        return [Found(store, name)] if together is None else together

    def _together(self, url: str) -> "Sequence[Found] | None":
        """The objects of a folder that is one archive; None if it is no such."""
        from cafcat.formats import registry as formats
        from cafcat.maintenance.adopt import Found

        store = self._store_of(url)
        found = formats.spread(StoredFolder(store))
        return None if found is None else [Found(store, name, found[1]) for name in found[1].names]
