"""Chooses the lost catalog that a rebuild restores, if several catalogs wrote to the stores."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from cafcat.catalog.history.journal import JournalRecord, JournalStore
from cafcat.errors import InvalidInput, NotFound
from cafcat.settings.stores import is_store_name
from cafcat.stores.base import Store
from cafcat.stores.marker import Marker, read_markers

__all__ = ["UNNAMED", "LostCatalogs"]

UNNAMED: Final = "unnamed"
"""Name of the catalog whose journal records contain no identity, if no marker claims these records."""
_LEAST_DIGITS: Final = 8
"""Least number of characters of a uuid that choose a catalog."""


@dataclass(slots=True)
class _Found:
    """The markers and journal records of one catalog in the stores.

    Attributes:
        marker: One of its readable markers; None if no store has one.
        has_marker: True if a store has a marker of it, readable or not.
        records: Number of its journal records.
        last: Time of its last record, ISO 8601 in UTC; "" without records.
        identities: The identities that its readable markers give to the stores.
        newest: Its last record that lists the stores of the catalog; None if no record does.
        damaged_retired: The damaged chunks without live files that its records list, each with the highest number
            of such a record.
        names: The number of the last record that lists a store, and the name of the store in this record, by
            identity of the store.
    """

    marker: Marker | None = None
    has_marker: bool = False
    records: int = 0
    last: str = ""
    identities: set[UUID] = field(default_factory=set)
    newest: JournalRecord | None = None
    damaged_retired: dict[UUID, int] = field(default_factory=dict)
    names: dict[UUID, tuple[int, str | None]] = field(default_factory=dict)


@dataclass(slots=True)
class LostCatalogs:
    """The catalogs that wrote to some stores, found by their markers and journal records.

    The identity None stands for the catalog of records without an identity, if no marker claims these.

    Attributes:
        stores: The stores.
        own: Identity of the catalog that is to be filled. It can only be chosen if the stores have records of it.
        lost: Identity of the catalog that is to be rebuilt. None before `choose`, if the chosen catalog is UNNAMED,
            or if the stores have no trace of a catalog.
    """

    stores: Sequence[Store]
    own: UUID
    lost: UUID | None = None
    _found: dict[UUID | None, _Found] = field(default_factory=dict)
    _claims: UUID | None = None

    def __post_init__(self) -> None:
        """Read the markers of all stores."""
        for store in self.stores:
            self._add_markers(read_markers(store))

    def owner(self, catalog: UUID | None) -> UUID | None:
        """Return the identity of the catalog that wrote a journal record or backup.

        Args:
            catalog: The identity in the record or backup; None if it has none.

        Returns:
            The given identity; without one, that of the catalog whose marker claims such records and backups; None
            if no marker does.
        """
        return catalog or self._claims

    def count(self, record: JournalRecord) -> UUID | None:
        """Count a journal record for its catalog, and return the identity of that catalog; None if unknown."""
        owner = self.owner(record.catalog)
        found = self._found.setdefault(owner, _Found())
        found.records += 1
        found.last = max(found.last, record.happened_at)
        for chunk in record.damaged_retired:
            found.damaged_retired[chunk] = max(record.sequence, found.damaged_retired.get(chunk, 0))
        for store in record.stores:
            if record.sequence >= found.names.get(store.uuid, (0, None))[0]:
                found.names[store.uuid] = record.sequence, store.name
        if record.stores and (found.newest is None or record.sequence >= found.newest.sequence):
            found.newest = record
        return owner

    def unnamed_stores(self) -> tuple[str, list[JournalStore]]:
        """Find the stores of the chosen catalog that are not among those of this rebuild.

        The last journal record that was found lists the stores that the catalog had at that time.

        Returns:
            Time of that record (ISO 8601, UTC; "" if no record lists stores), and the stores that are not named.
        """
        found = self._found.get(self.lost)
        if found is None or found.newest is None:
            return "", []
        named = {store.url for store in self.stores}
        missing = [
            store for store in found.newest.stores if store.uuid not in found.identities and store.url not in named
        ]
        return found.newest.happened_at, missing

    def store_names(self) -> Mapping[UUID, str]:
        """Return names of stores of the chosen catalog by identity, each as in the last record that lists it."""
        found = self._found.get(self.lost)
        names = {} if found is None else found.names
        return {store: name for store, (_, name) in names.items() if name is not None and is_store_name(name)}

    def damaged_retired(self) -> Mapping[UUID, int]:
        """Return the chunks of the chosen catalog that were damaged or missing, and had no live file.

        A chunk has live files again after `undelete`, whose record lists them, or if it was committed once more.

        Returns:
            Each chunk with the highest journal.id of a record that lists the chunk.
        """
        found = self._found.get(self.lost)
        return {} if found is None else found.damaged_retired

    @property
    def are_several(self) -> bool:
        """True if several catalogs wrote to the stores: then a chunk without a record can be from any of them."""
        return len(self._candidates()) > 1

    @property
    def own_is_unused(self) -> bool:
        """True if the marker of the identity `own` in the stores is useless.

        The catalog that is filled takes over another identity, and the stores have no records of its own one.
        """
        own = self._found.get(self.own)
        return self.lost not in (None, self.own) and own is not None and not own.records

    def choose(self, name: str | None) -> None:
        """Choose the catalog that is to be rebuilt, and store its identity in `lost`.

        Args:
            name: Uuid of the catalog, or its first 8 digits or more, or UNNAMED; None for the only catalog.

        Raises:
            InvalidInput: There are several catalogs, and no name was given.
            NotFound: No catalog has this name, or the uuids of several catalogs begin with it.
        """
        self._claim()
        candidates = self._candidates()
        if name is None and len(candidates) > 1:
            stores = " ".join(shlex.quote(store.url) for store in self.stores)
            raise InvalidInput(
                f"{len(candidates)} catalogs wrote to these stores: {self._listed(candidates)}",
                hint=f"choose one: cafcat rebuild {stores} --catalog UUID",
            )
        chosen = candidates if name is None else [found for found in candidates if _matches(found, name)]
        if name is not None and len(chosen) != 1:
            listed = self._listed(candidates) or "none"
            raise NotFound(f"no catalog {name} wrote to these stores; the catalogs that did: {listed}")
        self.lost = next(iter(chosen), None)

    def _add_markers(self, markers: Iterable[tuple[UUID, Marker | None]]) -> None:
        for catalog, marker in markers:
            found = self._found.setdefault(catalog, _Found())
            found.marker, found.has_marker = found.marker or marker, True
            if marker is not None:
                found.identities.add(marker.store)
            if marker is not None and marker.has_unnamed:
                self._claims = self._claims or catalog

    def _claim(self) -> None:
        """Give the records without an identity to the only catalog with an identity, if there is no marker at all.

        An earlier version of cafcat wrote these records, and this version has not ingested into the stores yet.
        """
        named = [catalog for catalog in self._found if catalog is not None]
        if None in self._found and len(named) == 1 and self._found[named[0]].records and not self._has_marker():
            unnamed = self._found.pop(None)
            self._claims = named[0]
            self._found[named[0]].records += unnamed.records

    def _has_marker(self) -> bool:
        return any(found.has_marker for found in self._found.values())

    def _candidates(self) -> list[UUID | None]:
        return [catalog for catalog, found in self._found.items() if catalog != self.own or found.records]

    def _listed(self, catalogs: Sequence[UUID | None]) -> str:
        return ", ".join(self._described(catalog) for catalog in catalogs)

    def _described(self, catalog: UUID | None) -> str:
        found = self._found[catalog]
        counted = "1 journal record" if found.records == 1 else f"{found.records} journal records"
        records = f"{counted}, the last of {found.last}" if found.last else counted
        where = (
            f"since {found.marker.since}, {found.marker.host}, {found.marker.database}; " if found.marker else ""
        )
        return f"{catalog or UNNAMED} ({where}{records})"


def _matches(catalog: UUID | None, name: str) -> bool:
    if catalog is None:
        return name == UNNAMED
    return str(catalog) == name.lower() or (len(name) >= _LEAST_DIGITS and str(catalog).startswith(name.lower()))
