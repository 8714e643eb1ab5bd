"""Prints the planned requests of a command with --explain."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from cafcat.cli.call import Call
from cafcat.cli.errors import SOME_FAILED
from cafcat.support.quantities import format_size, plural

if TYPE_CHECKING:
    from cafcat.reading.plan import ReadPlan

__all__ = ["show_plan"]


def show_plan(call: Call, plan: "ReadPlan") -> int:
    """Print the planned requests, and return the exit code: 0, or 3 if any file cannot be read.

    The errors of files that are missing, or lack the range, are printed first. If the plan is for a single file,
    its error is raised.
    """
    if plan.failed and not plan.files and len(plan.failed) == 1:
        raise plan.failed[0][1]
    for _, error in plan.failed:
        call.report(error)
    counts = {"files": plan.files, "requests": plan.requests}
    sizes = {"bytes_wanted": plan.bytes_wanted, "bytes_read": plan.bytes_read}
    chunks = [asdict(chunk) for chunk in plan.chunks]
    shown = {key: f"{size} ({format_size(size)})" for key, size in sizes.items()}
    call.output.fields(counts | sizes | {"chunks": chunks}, counts | shown | {"chunks": len(chunks)})
    if not call.json:
        for chunk in plan.chunks:
            work = f"{plural(chunk.requests, 'request')} for {plural(chunk.files, 'file')}"
            sizes_shown = f"{format_size(chunk.bytes_wanted)} of {format_size(chunk.bytes_read)} wanted"
            call.output.line(f"{chunk.chunk}  {work}, {sizes_shown}, {call.output.shown(chunk.object)}")
    return SOME_FAILED if plan.failed else 0
