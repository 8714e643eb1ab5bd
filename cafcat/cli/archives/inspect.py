"""The command `cafcat inspect`: its flags and output."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cafcat.cli.call import Call, verb
from cafcat.cli.options import InputFormat, ZeroPadding
from cafcat.cli.output import entry_document, timestamp
from cafcat.cli.stopping import interrupted_by_signals
from cafcat.model import Entry
from cafcat.support.quantities import format_size

if TYPE_CHECKING:
    from cafcat.operations.inspect.run import Inspection

__all__ = ["register"]


def inspect(
    call: Call,
    *,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Archive file, s3://bucket/key, or folder with a bundle.")
    ],
    long: Annotated[
        bool, typer.Option("--long", "-l", help="Print byte ranges, sizes, checksums and times, too.")
    ] = False,
    blocks: Annotated[
        bool, typer.Option("--blocks", help="List the blocks of a CAR by CID, not the files.")
    ] = False,
    format: InputFormat = None,
    zero_padding: ZeroPadding = False,
) -> None:
    """List the files in an archive, without a catalog.

    Example: cafcat inspect -l backup.caf
    """
    from cafcat.cli.archives.convert import settings_for
    from cafcat.without_catalog import inspect as look_into

    with interrupted_by_signals():  # so that the temporary folder with the index of a bundle is removed
        archive = look_into(file, settings_for(call, file), format=format, zero_padding=zero_padding)
        if call.verbose:
            _show_about(call, archive)
        for part in archive.parts():
            _show_entries(call, part, long=long, blocks=blocks)
            _show_remarks(call, part)


def _show_entries(call: Call, part: "Inspection", *, long: bool, blocks: bool) -> None:
    for entry in part.blocks() if blocks else part.entries:
        text = call.output.shown(entry.path)
        line = f"{_columns(entry)}  {text}" if long else text
        call.output.show(entry_document(entry, part.object), [line])


def _show_remarks(call: Call, archive: "Inspection") -> None:
    for remark in archive.remarks():
        if call.json:
            call.output.document({"remark": {"object": archive.object} | remark._asdict()})
        else:
            call.output.notice(f"{archive.object}: {remark.message}")


def _show_about(call: Call, archive: "Inspection") -> None:
    """Print facts about an archive, such as format and size: a JSON document with --json, else lines on stderr."""
    document = {"object": archive.object, "format": archive.format, "size_bytes": archive.size_bytes}
    about = archive.about()
    if call.json:
        call.output.document({"archive": document | dict(about)})
        return
    single = [_fact(key, value) for key, value in about.items() if value and not isinstance(value, list)]
    size = f"{archive.size_bytes} bytes ({format_size(archive.size_bytes)})"
    call.output.notice(f"{archive.object}: {', '.join([f'format {archive.format}', *single, size])}")
    for line in _items(about.items()):
        call.output.notice(line)


def _items(about: Any) -> Iterator[str]:
    """Yield a line for each item of each fact about an archive whose value is a list, such as "root: bafy...".

    Args:
        about: Pairs of the name of a fact and its value.
    """
    for key, values in about:
        for value in values if isinstance(values, list) else ():
            fields = value.items() if isinstance(value, dict) else (("", value),)
            shown = ", ".join(f"{_words(name)} {text}".strip() for name, text in fields)
            yield f"{_words(key.removesuffix('s'))}: {shown}"


def _fact(key: str, value: Any) -> str:
    return _words(key) if value is True else f"{_words(key)} {value}"


def _words(key: str) -> str:
    return key.replace("_", " ")


def _columns(entry: Entry) -> str:
    crc32c = f"{entry.crc32c:08x}" if entry.crc32c is not None else "-"
    modified = timestamp(entry.modified_ns) or "-"
    return f"{entry.start_byte:>12}  {entry.end_byte:>12}  {entry.size_bytes:>12}  {crc32c:8}  {modified:27}"


def register(app: typer.Typer) -> None:
    """Add `cafcat inspect` to the commands of the program."""
    verb(app, "inspect", inspect)
