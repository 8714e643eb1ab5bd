"""The result of an estimate."""

from collections.abc import Sequence
from dataclasses import dataclass

from cafcat.operations.estimate.cost import ClassCost, Requests

__all__ = ["EstimateReport", "Speed"]


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast files of the sources were read.

    Attributes:
        objects: Number of files that were read; 0 if the speed was not measured.
        size_bytes: Their bytes.
        seconds: Time that this took.
    """

    objects: float = 0.0
    size_bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class EstimateReport:
    """What an ingest needs. A range is the model's estimate plus or minus two standard deviations.

    Attributes:
        sources: Names of the sources.
        is_exact: True if all files were counted.
        objects: Number of files.
        objects_range: Smallest and largest likely number of files.
        size_bytes: Bytes of the files.
        size_bytes_range: Smallest and largest likely number of bytes.
        pages: Number of pages of listings that were read. They were LIST requests if the source is a bucket.
        chunks: Number of chunks.
        chunk_bytes: Bytes of all chunks.
        requests: Requests of an ingest from a bucket into a bucket.
        dollars: Price of these requests in the first class of the price list.
        data_out_dollars: Price of reading the objects from outside of the provider's network.
        hours: Time of the ingest on one host; None if it is unknown.
        hours_range: Smallest and largest likely time; None if it is unknown.
        hours_by: What determines the time: "bandwidth", "listing" or "reading"; None if the time is unknown.
        speed: The measured speed of reading.
        provider: Name of the object store in the price list.
        region: Region of the price list.
        prices_published: Date of the price list.
        prices_source: URL of the price list.
        costs: Costs by storage class.
    """

    sources: Sequence[str]
    is_exact: bool
    objects: int
    objects_range: tuple[int, int]
    size_bytes: int
    size_bytes_range: tuple[int, int]
    pages: int
    chunks: int
    chunk_bytes: int
    requests: Requests
    dollars: float
    data_out_dollars: float
    hours: float | None
    hours_range: tuple[float, float] | None
    hours_by: str | None
    speed: Speed
    provider: str
    region: str
    prices_published: str
    prices_source: str
    costs: Sequence[ClassCost]
