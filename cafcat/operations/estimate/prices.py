"""The price list of an object store, read from a file in TOML."""

import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import resources
from typing import Any, Final

from cafcat.errors import InvalidInput

__all__ = ["ClassPrices", "PriceList", "Steps", "read_prices"]

_HINT: Final = "see cafcat/operations/estimate/prices.toml for the form"

Steps = tuple[tuple[float, float], ...]
"""Prices by amount: up to how many GB, and dollars for each of these GB. The first steps are used up first."""


@dataclass(frozen=True, slots=True)
class ClassPrices:
    """Prices of one storage class, in dollars.

    Attributes:
        storage: Price of storage for a month.
        put_per_1000: Price of 1,000 PUT, COPY and POST requests.
        get_per_1000: Price of 1,000 GET and HEAD requests.
        list_per_1000: Price of 1,000 LIST requests.
        part_per_1000: Price of 1,000 requests that begin an upload or send a part of it; None for `put_per_1000`.
        restore_per_1000: Price of 1,000 requests that make an object readable; None if objects can be read at once.
        retrieval_per_gb: Price of reading 1 GB.
        least_bytes: A smaller object costs as much as one of this size.
        overhead_bytes: Bytes that are added to each object, at the price of this class.
        overhead_standard_bytes: Bytes that are added to each object, at the price of the first class.
        least_days: Storage of an object that is deleted earlier is paid for so many days.
    """

    storage: Steps
    put_per_1000: float
    get_per_1000: float
    list_per_1000: float
    part_per_1000: float | None = None
    restore_per_1000: float | None = None
    retrieval_per_gb: float = 0.0
    least_bytes: int = 0
    overhead_bytes: int = 0
    overhead_standard_bytes: int = 0
    least_days: int = 0


@dataclass(frozen=True, slots=True)
class PriceList:
    """The prices of an object store in one region.

    Attributes:
        provider: Name of the object store.
        region: Its region.
        published: Date of the list.
        seen: Date at which the list was read.
        source: URL of the list.
        gb_bytes: Bytes in a GB.
        data_out: Price of data that leaves for the internet.
        classes: The storage classes by name. Chunks are written into the first one.
    """

    provider: str
    region: str
    published: str
    seen: str
    source: str
    gb_bytes: int
    data_out: Steps
    classes: Mapping[str, ClassPrices]

    @property
    def standard(self) -> ClassPrices:
        """Prices of the first storage class."""
        return next(iter(self.classes.values()))

    def stepped(self, size_bytes: float, steps: Steps) -> float:
        """Return the price of a number of bytes, in dollars, if the price of a GB falls with the amount."""
        dollars, before, amount = 0.0, 0.0, size_bytes / self.gb_bytes
        for limit, price in steps:
            dollars += max(0.0, min(amount, limit) - before) * price
            before = limit
        return dollars


def read_prices(file: str | os.PathLike[str] | None = None) -> PriceList:
    """Return the prices in a file.

    Args:
        file: Path of the file; None for the list of Amazon S3 in us-east-1 that cafcat has.

    Raises:
        InvalidInput: The file cannot be read, or is not a price list.
    """
    name = "prices.toml" if file is None else os.fspath(file)
    try:
        if file is None:
            text = resources.files(__package__).joinpath(name).read_text("utf-8")
        else:
            with open(file, encoding="utf-8") as opened:
                text = opened.read()
        return _price_list(tomllib.loads(text))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidInput(f"the prices in {name} cannot be read: {error}", hint=_HINT) from error


def _price_list(document: dict[str, Any]) -> PriceList:
    classes = {str(name): _class_prices(table) for name, table in document.pop("classes").items()}
    if not classes:
        raise ValueError("there is no storage class")
    _check_keys(document, PriceList)
    values = document | {"data_out": _steps(document["data_out"]), "classes": classes}
    return PriceList(**values)


def _class_prices(table: dict[str, Any]) -> ClassPrices:
    _check_keys(table, ClassPrices)
    prices = ClassPrices(**table | {"storage": _steps(table["storage"])})
    if any(not value >= 0 for name, value in table.items() if name != "storage"):
        raise ValueError("a price is below 0")
    return prices


def _check_keys(table: dict[str, Any], kind: type) -> None:
    unknown = sorted(set(table) - {field.name for field in fields(kind)})
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}")


def _steps(value: Any) -> Steps:
    steps = tuple((float(limit), float(price)) for limit, price in value)
    limits = [limit for limit, _ in steps]
    if not steps or limits != sorted(limits) or limits[-1] != math.inf or any(not price >= 0 for _, price in steps):
        raise ValueError("the limits of prices must rise, and the last one must be inf")
    return steps
