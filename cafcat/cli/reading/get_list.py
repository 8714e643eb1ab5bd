"""The command `cafcat get --files-from`: writes the listed files into one tar or zip."""

import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

from cafcat.cli.call import Call
from cafcat.cli.choosing import choose
from cafcat.cli.errors import SOME_FAILED
from cafcat.cli.stopping import interrupted_by_signals
from cafcat.errors import InvalidInput
from cafcat.reading.archive_stream import FORMATS, ON_ERROR, ArchiveStream, OnError
from cafcat.reading.outputs import write_single
from cafcat.session import output_of
from cafcat.support.quantities import format_size, plural

__all__ = ["ListArguments", "archive_format", "get_list", "list_arguments"]


@dataclass(frozen=True, slots=True)
class ListArguments:
    """The arguments of `cafcat get --files-from`.

    Attributes:
        listing: Name of the list; "-" for stdin.
        output: Name of the archive to write.
        format: "tar" or "zip".
        on_error: "fail" or "skip".
        null: True if NUL bytes end the names in the list.
        force: True to overwrite the archive.
    """

    listing: str
    output: str
    format: str
    on_error: OnError
    null: bool
    force: bool


def archive_format(output: str | None) -> str | None:
    """Return "tar" or "zip" if an output has a name with this suffix, and is no folder; else None."""
    if output is None or os.path.isdir(output):
        return None
    return next((name for name in FORMATS if output.lower().endswith(f".{name}")), None)


def list_arguments(
    listing: str, output: str | None, on_error: str | None, others: Mapping[str, object], *, null: bool, force: bool
) -> ListArguments:
    """Return the arguments, after they have been checked.

    Args:
        listing: The value of `--files-from`.
        output: The value of `-o`.
        on_error: The value of `--on-error`; None means "fail".
        others: Values of arguments that cannot be used with `--files-from`, by their names.
        null: True with `-0`.
        force: True with `-f`.

    Raises:
        InvalidInput: An argument is missing or invalid, or one of the others was given.
    """
    for name, value in others.items():
        if value:
            raise InvalidInput(f"{name} cannot be used with an archive of --files-from")
    format = archive_format(output)
    if output is None or format is None:
        raise InvalidInput("--on-error is for archives", hint="name one with -o FILE.tar or -o FILE.zip")
    reaction = on_error or "fail"
    if reaction not in ON_ERROR:
        raise InvalidInput(f"--on-error must be fail or skip, not {reaction!r}")
    return ListArguments(listing, output, format, "skip" if reaction == "skip" else "fail", null, force)


def get_list(call: Call, arguments: ListArguments) -> int:
    """Write the listed files into one archive, and return the exit code: 0, or 3 if files were left out."""
    names = choose((), arguments.listing, null=arguments.null).listed
    output = output_of(call.settings(), arguments.output, overwrite=arguments.force)
    output.check_free()
    with interrupted_by_signals(), call.reading() as repository:
        stream = repository.stream_archive(names, format=arguments.format, on_error=arguments.on_error)
        counted = _Counted(stream)
        with closing(stream):
            write_single(output, None, counted)
    for _, error in stream.failed:
        call.report(error)
    _summarize(call, arguments, stream, counted.size_bytes)
    return SOME_FAILED if stream.failed else 0


class _Counted:
    """The blocks of a stream, whose bytes are counted.

    Attributes:
        size_bytes: Number of bytes so far.
    """

    def __init__(self, stream: ArchiveStream) -> None:
        self._stream = stream
        self.size_bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        for block in self._stream:
            self.size_bytes += len(block)
            yield block


def _summarize(call: Call, arguments: ListArguments, stream: ArchiveStream, size_bytes: int) -> None:
    document = {
        "output": os.path.abspath(arguments.output),
        "format": arguments.format,
        "files": stream.file_count,
        "failed": len(stream.failed),
        "size_bytes": size_bytes,
    }
    failed = f"; failed {len(stream.failed)}" if stream.failed else ""
    line = f"wrote {plural(stream.file_count, 'file')} to {call.output.shown(arguments.output)}"
    call.summarize({"summary": document}, [f"{line}, {format_size(size_bytes)}{failed}"])
