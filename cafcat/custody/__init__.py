"""Custody of what was packed: proving it, mending it, removing it, keeping it twice. `Repository.custody` is it."""

from cafcat.custody.adopting import Adopting
from cafcat.custody.catalogs import Catalogs
from cafcat.custody.files import Files
from cafcat.custody.logs import Logs
from cafcat.custody.proving import Proving
from cafcat.custody.rewriting import Rewriting
from cafcat.custody.stores import StoreKeeping

__all__ = ["Custody"]


class Custody(Proving, Files, Rewriting, StoreKeeping, Catalogs, Adopting, Logs):
    """One catalog and its stores, as their keeper sees them. Each method imports what only it needs."""
