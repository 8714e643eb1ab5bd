"""Prints the result of `cafcat ingest --estimate`."""

from collections.abc import Iterator
from dataclasses import asdict

from cafcat.cli.call import Call
from cafcat.operations.estimate.report import EstimateReport
from cafcat.support.quantities import format_size, plural

__all__ = ["show_estimate"]


def show_estimate(call: Call, report: EstimateReport) -> None:
    """Print an estimate: lines for people, or one document with --json."""
    call.summarize({"estimate": asdict(report)}, _lines(report))


def _lines(report: EstimateReport) -> Iterator[str]:
    how = "counted" if report.is_exact else f"estimated from {plural(report.pages, 'page')} of the listing"
    objects, size = report.objects_range, report.size_bytes_range
    yield f"objects   {report.objects:,}{_between(report, f'{objects[0]:,} to {objects[1]:,}')}, {how}"
    between = _between(report, f"{format_size(size[0])} to {format_size(size[1])}")
    yield f"bytes     {format_size(report.size_bytes)}{between}"
    yield f"chunks    {report.chunks:,} with {format_size(report.chunk_bytes)}"
    requests = report.requests
    yield (
        f"requests  {requests.total:,}: {requests.list:,} LIST, {requests.get:,} GET of objects,"
        f" {requests.part:,} begins and parts of uploads, {requests.put:,} completions, {requests.head:,} checks"
    )
    out = f"{_dollars(report.data_out_dollars)} more if the data leaves the region"
    yield f"dollars   {_dollars(report.dollars)} for requests; {out}"
    yield f"hours     {_hours(report)}"
    yield ""
    yield f"{report.provider}, {report.region}, prices of {report.prices_published}, in dollars:"
    yield f"{'class':15}{'a month':>24}{'pack':>12}{'read 1 %':>22}{'read all':>22}"
    yield f"{'':15}{'single':>12}{'packed':>12}{'':12}{'single':>11}{'packed':>11}{'single':>11}{'packed':>11}"
    for cost in report.costs:
        yield (
            f"{cost.storage_class:15}{_dollars(cost.single_month):>12}{_dollars(cost.packed_month):>12}"
            f"{_dollars(cost.packing):>12}{_dollars(cost.single_read_1_percent):>11}"
            f"{_dollars(cost.packed_read_1_percent):>11}{_dollars(cost.single_read_all):>11}"
            f"{_dollars(cost.packed_read_all):>11}"
        )


def _between(report: EstimateReport, text: str) -> str:
    return "" if report.is_exact else f" ({text})"


def _dollars(dollars: float) -> str:
    return f"{dollars:,.2f}" if dollars < 1000 else f"{dollars:,.0f}"


def _hours(report: EstimateReport) -> str:
    if report.hours is None or report.hours_range is None:
        return "unknown: no file was read"
    low, high = report.hours_range
    likely = _between(report, f"{low:.2g} to {high:.2g}") if low >= 0.01 else ""
    speed = report.speed
    read = f"; read {plural(round(speed.objects), 'file')} in {speed.seconds:.1f} s" if speed.objects else ""
    hours = f"{report.hours:.2g}" if report.hours >= 0.01 else "less than 0.01"
    return f"{hours}{likely} on one host, by {report.hours_by}{read}; writing was not measured"
