"""Runs an estimate: counts or samples the sources, measures the speed of reading, and computes the costs."""

import math
from collections.abc import Sequence
from typing import Final

from cafcat.errors import Unsupported
from cafcat.formats import registry as formats
from cafcat.formats.base import NullSink
from cafcat.formats.registry import LOGS
from cafcat.operations.estimate.cost import LIST_KEYS, Packing, chunks_of, cost_of, packing_cost, requests_of
from cafcat.operations.estimate.counted import Counted
from cafcat.operations.estimate.counting import CountedSource, count_source
from cafcat.operations.estimate.options import EstimateOptions
from cafcat.operations.estimate.prices import read_prices
from cafcat.operations.estimate.reading import measure
from cafcat.operations.estimate.report import EstimateReport, Speed
from cafcat.operations.estimate.sizes import Sizes
from cafcat.operations.opened_sources import source_opener
from cafcat.session import Session
from cafcat.sources.base import LocalSource, Source
from cafcat.stores.s3.parts import plan_parts
from cafcat.writing.limits import Limits

__all__ = ["estimate_sources", "packing_of", "run"]

_DEVIATIONS: Final = 2.0
"""Half of a range, in standard deviations."""


def run(session: Session, options: EstimateOptions) -> EstimateReport:
    """Return what an ingest of the sources needs. Nothing is written.

    Raises:
        InvalidInput: Options are out of range, or the price list cannot be read.
        NotFound: A source does not exist.
        Unsupported: A source is a tar archive, or the format packs logs.
        SourceFailed, StoreFailed, AccessDenied: A source cannot be listed or read.
    """
    options.check()
    sources = source_opener(session, options).open(options.sources)
    session.progress.begin("estimate")
    try:
        return estimate_sources(session, options, sources)
    finally:
        session.progress.end()


def estimate_sources(session: Session, options: EstimateOptions, sources: Sequence[Source]) -> EstimateReport:
    """Return what an ingest of opened sources needs. Raises the errors of `run`."""
    prices = read_prices(options.prices)
    found = [count_source(session, source, options.pages) for source in sources]
    speeds = [measure(session, one.source, one.files, options.read_seconds / len(found)) for one in found]
    counted = sum((one.counted for one in found), Counted())
    remote = sum((one.counted.sizes for one in found if not isinstance(one.source, LocalSource)), Sizes())
    packing = packing_of(session, options, found)
    sizes, chunks = counted.sizes, chunks_of(counted.sizes, packing)
    is_listed = options.inventory is None
    requests = requests_of(remote, chunks, is_listed=is_listed)
    objects = _range(sizes.objects, counted.objects_variance)
    bandwidth = session.settings.bandwidth if options.bandwidth is None else options.bandwidth
    seconds, hours_by = _seconds(found, speeds, bandwidth)
    return EstimateReport(
        sources=[one.source.name for one in found],
        is_exact=counted.is_exact,
        objects=round(sizes.objects),
        objects_range=objects,
        size_bytes=round(sizes.size_bytes),
        size_bytes_range=_range(sizes.size_bytes, counted.bytes_variance),
        pages=sum(one.pages for one in found),
        chunks=chunks.count,
        chunk_bytes=round(chunks.size_bytes),
        requests=requests,
        dollars=packing_cost(requests, remote, prices, prices.standard, prices.standard),
        data_out_dollars=prices.stepped(remote.size_bytes, prices.data_out),
        hours=None if seconds is None else seconds / 3600,
        hours_range=None if seconds is None else _hours_range(seconds, sizes.objects, objects),
        hours_by=hours_by,
        speed=_total(speeds),
        provider=prices.provider,
        region=prices.region,
        prices_published=prices.published,
        prices_source=prices.source,
        costs=[cost_of(name, sizes, packing, prices, remote, is_listed=is_listed) for name in prices.classes],
    )


def packing_of(session: Session, options: EstimateOptions, found: Sequence[CountedSource]) -> Packing:
    """Return how the files are packed, with the largest overhead that the format has for names of the mean length.

    Raises:
        InvalidInput: The target size is out of range.
        Unsupported: The format packs logs, whose size depends on their content.
    """
    archive_format = formats.for_new_chunks(options.format)
    if archive_format.name == LOGS:
        raise Unsupported(f"the size of an archive of {LOGS} depends on the content of the logs")
    target_bytes = session.settings.target_size if options.target_size is None else options.target_size
    Limits(target_bytes=target_bytes).check()
    objects = sum(one.counted.sizes.objects for one in found)
    mean_bytes = sum(one.counted.sizes.size_bytes for one in found) / objects if objects else 0.0
    name_bytes = sum(one.counted.sizes.objects * one.name_bytes for one in found) / objects if objects else 0.0
    writer, size_bytes = archive_format.writer(NullSink()), round(mean_bytes)
    overhead = writer.size_if_finalized("n" * max(1, round(name_bytes)), size_bytes) - size_bytes
    overhead -= writer.size_if_finalized()
    return Packing(target_bytes, plan_parts(session.settings.upload_memory).part_bytes, overhead)


def _seconds(
    found: Sequence[CountedSource], speeds: Sequence[Speed], bandwidth: int | None
) -> tuple[float | None, str | None]:
    """Return the time of the ingest in seconds, and what determines it; None for both if nothing was measured."""
    times: dict[str, float] = {"reading": 0.0, "listing": 0.0, "bandwidth": 0.0}
    for one, speed in zip(found, speeds, strict=True):
        objects = one.counted.sizes.objects
        if objects and not speed.objects and bandwidth is None:
            return None, None
        times["reading"] += objects * speed.seconds / speed.objects if speed.objects else 0.0
        if not isinstance(one.source, LocalSource):
            times["listing"] += objects / LIST_KEYS * one.page_seconds
            times["bandwidth"] += one.counted.sizes.size_bytes / bandwidth if bandwidth else 0.0
    longest = max(times, key=lambda name: times[name])
    return times[longest], longest


def _range(value: float, variance: float) -> tuple[int, int]:
    half = _DEVIATIONS * math.sqrt(variance)
    return max(0, round(value - half)), round(value + half)


def _hours_range(seconds: float, objects: float, likely: tuple[int, int]) -> tuple[float, float]:
    return seconds / 3600 * likely[0] / max(1.0, objects), seconds / 3600 * likely[1] / max(1.0, objects)


def _total(speeds: Sequence[Speed]) -> Speed:
    return Speed(
        sum(speed.objects for speed in speeds),
        sum(speed.size_bytes for speed in speeds),
        sum(speed.seconds for speed in speeds),
    )
