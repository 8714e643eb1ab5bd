"""Archives that are there already."""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cafcat.custody.base import Keeper, ignore, never
from cafcat.errors import CafcatError, InvalidInput
from cafcat.model import OnConflict
from cafcat.progress import Progress
from cafcat.remote.access import is_s3
from cafcat.remote.address import parse_s3
from cafcat.sources.names import prefixed
from cafcat.stores.keys import check_key

if TYPE_CHECKING:
    from cafcat.archives.naming import ArchiveLocator
    from cafcat.operations.adopt.run import Adopt, AdoptedFile, AdoptReport, Found

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
        format: str | None = None,
        zero_padding: bool = False,
    ) -> "AdoptReport":
        """Enters archives of any format that are there already, where they are: files (paths or file:// URLs),
        or objects at s3:// URLs; or folders and prefixes that are one archive in several files, each of which
        becomes a chunk. Nothing is ever written to them, nor are they removed. Every entry is read once.

        prefix: a folder of the catalog, below which the names in the archives come. on_conflict: what becomes of a
        path that the catalog has. dry_run: reads all, changes nothing. on_adopted is told of each archive. When
        should_stop says True, which is asked again and again, or raises, nothing is left of the archive at hand,
        and no further one is looked at. format: of all these archives; by default, their content tells.
        zero_padding: a section of size zero is the end of a CAR.

        An archive that cannot be adopted, and an entry that cannot be read, costs only itself and is reported.
        Raises InvalidInput, CatalogUnavailable, CatalogOutdated.
        """
        from cafcat.formats.read_as import ReadAs
        from cafcat.formats.registry import asked_for
        from cafcat.operations.adopt.run import Adopt

        if format is not None:
            asked_for(format)
        if isinstance(archives, str | bytes | os.PathLike):
            raise InvalidInput("archives are a list of names", hint=f"write [{os.fspath(archives)!r}]")
        progress, should_stop = progress or Progress(), should_stop or never
        adopt = Adopt(
            self._catalog,
            prefix=prefixed(prefix, ""),
            on_conflict=OnConflict(on_conflict),
            dry_run=dry_run,
            progress=progress,
            on_adopted=on_adopted or ignore,
            should_stop=should_stop,
            read_as=ReadAs(format, zero_padding),
        )
        try:
            for archive in [os.fspath(archive) for archive in archives]:
                # Before its index is copied, if it is a bundle.
                if adopt.report.interrupted or should_stop():
                    adopt.report.interrupted = True
                    break
                self._take(adopt, archive)
        finally:
            progress.end()
        return adopt.report

    def _take(self, adopt: "Adopt", archive: str) -> None:
        try:
            found = self._found(archive)
        except CafcatError as error:
            adopt.fail(archive, error)
            return
        for part in found:
            adopt.take(part)
            if adopt.report.interrupted:
                break

    def _found(self, archive: str) -> "Sequence[Found]":
        """The store that an archive is in, as if it were one, and its key there; or the objects that are an archive
        together. Raises InvalidInput, and what finding out about a folder raises."""
        from cafcat.archives.naming import Together, found
        from cafcat.operations.adopt.run import Found

        together = found(archive, self._alone, self._store_of)
        if not isinstance(together, Together):
            return [together]
        return [Found(together.store, name, together.spread) for name in together.spread.names]

    def _alone(self, place: "ArchiveLocator") -> "Found":
        from cafcat.operations.adopt.run import Found

        store = self._store_of(place.folder)
        if is_s3(place.name):
            check_key(parse_s3(place.name).key)  # a store leaves slashes out, and has another object then
            store.stat(place.key)  # raises NotFound: the name may be that of a folder
        return Found(store, place.key)
