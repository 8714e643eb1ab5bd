"""Previews of files: the beginning of texts and binary files, and elements that show images, sounds and videos."""

from dataclasses import dataclass
from typing import Final

from cafcat.errors import CafcatError
from cafcat.model import Location
from cafcat.packed_files import PackedFiles
from cafcat.serve.failures import status_of
from cafcat.serve.representation import type_of

__all__ = ["Preview", "preview_of"]

_TEXT_BYTES: Final = 16 << 10
_HEX_BYTES: Final = 512
_DECODED_BYTES: Final = 1 << 20
"""A file that has to be decoded is decoded as a whole; a larger one has no preview."""
_IMAGES: Final = frozenset(
    (b"image/png", b"image/jpeg", b"image/gif", b"image/webp", b"image/avif", b"image/bmp", b"image/x-icon")
)
"""Images that cannot contain scripts. SVG is shown as text."""
_WIDTH: Final = 16


@dataclass(frozen=True, slots=True)
class Preview:
    """What a page shows of a file's content.

    Attributes:
        kind: "image", "audio", "video", "text", "hex", "empty" or "none".
        lines: Lines of a text; or of a hexadecimal dump: offset, bytes and characters.
        shown_bytes: How many bytes of the file the lines are.
        reason: Why there is no preview; "" if there is one.
    """

    kind: str
    lines: tuple[str, ...] = ()
    shown_bytes: int = 0
    reason: str = ""


def preview_of(repository: PackedFiles, location: Location, *, names_stores: bool) -> Preview:
    """Return the preview of a file. Images, sounds and videos are loaded by the browser, so nothing is read here.

    Args:
        repository: Reads the file.
        location: Where the file is.
        names_stores: True if the reason for a missing preview may name folders, buckets and hosts.
    """
    kind = type_of(location.path)
    if location.size_bytes == 0:
        return Preview("empty")
    if kind in _IMAGES or kind.startswith((b"audio/", b"video/")):
        return Preview(kind.partition(b"/")[0].decode())
    return _read(repository, location, names_stores=names_stores)


def _read(repository: PackedFiles, location: Location, *, names_stores: bool) -> Preview:
    """Return the preview of a text or binary file from its first bytes."""
    if location.decoding is not None and location.size_bytes > _DECODED_BYTES:
        return Preview("none", reason="The file is stored encoded, and is too large to be decoded for a preview.")
    try:
        data = b"".join(repository.stream_location(location, 0, min(_TEXT_BYTES, location.size_bytes)))
    except CafcatError as error:
        message = error.message if names_stores else status_of(error)[1]
        return Preview("none", reason=f"The file cannot be read: {message}")
    text = _text(data, is_cut=len(data) < location.size_bytes)
    if text is not None:
        return Preview("text", tuple(text.removesuffix("\n").split("\n")), len(data))
    return Preview("hex", tuple(_dump(data[:_HEX_BYTES])), min(len(data), _HEX_BYTES))


def _text(data: bytes, *, is_cut: bool) -> str | None:
    """Return bytes as text; None if they are not UTF-8, or have control characters that texts do not have.

    Args:
        data: The first bytes of a file.
        is_cut: True if the file has more bytes, so that the last character may be incomplete.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if not (is_cut and error.start >= len(data) - 3 and error.reason == "unexpected end of data"):
            return None
        text = data[: error.start].decode()
    is_plain = all(c >= " " or c in "\t\n\r\f\x1b" for c in text)
    return text.replace("\r\n", "\n") if is_plain and "\x7f" not in text else None


def _dump(data: bytes) -> list[str]:
    lines = []
    for start in range(0, len(data), _WIDTH):
        row = data[start : start + _WIDTH]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {row.hex(' '):<{3 * _WIDTH - 1}}  {shown}")
    return lines
