"""A small catalog that has something for every page, and the list of its pages."""

import contextlib
import struct
import zlib
from pathlib import Path
from urllib.parse import urlencode

import cafcat
from cafcat.catalog.console.views import VIEWS

__all__ = ["HOSTILE", "PICTURE", "fill", "pages"]

HOSTILE = [
    "<script>alert(1)<!--.txt",
    '"><img src=x onerror=alert(1)>.txt',
    "javascript:alert(1)",
    "line\nbreak.txt",
    "\x1b[31mred.txt",
    "\u202egpj.exe",
    "a&amp;b.txt",
    "%2e%2e%2f.txt",
    "what?path=other#here.txt",
    "{{ 7*7 }}.txt",
    "-rf; rm $(echo) `x` 'quote'.txt",
    "é 日本 " + "x" * 180 + ".txt",
]


def picture(width: int = 64, height: int = 48) -> bytes:
    """Return a picture (PNG)."""

    def block(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes(v for x in range(width) for v in (4 * x, 5 * y, 120)) for y in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + block(b"IHDR", head) + block(b"IDAT", zlib.compress(rows)) + block(b"IEND", b"")


PICTURE = picture()


def sound(seconds: float = 0.5) -> bytes:
    """Return silence (WAV)."""
    count = int(8000 * seconds)
    head = struct.pack(
        "<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + count, b"WAVE", b"fmt ", 16, 1, 1, 8000, 8000, 1, 8, b"data", count
    )
    return head + b"\x80" * count


def fill(repository: cafcat.Repository, folder: Path) -> None:
    """Ingest, replace and remove files, make copies, verify, and damage one chunk.

    Args:
        repository: a repository with an empty catalog.
        folder: an empty folder for sources and copies.
    """
    tree = folder / "photos"
    for name, content in files().items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    with contextlib.chdir(folder):
        repository.ingest(["photos"])
        for number in range(30):
            (tree / "notes" / f"{number:03}.txt").write_text(f"changed {number}\n" * 5)
        (tree / "broken").symlink_to("nowhere")
        repository.ingest(["photos"])
        repository.rm([f"photos/notes/{number:03}.txt" for number in range(40, 50)])
        repository.copy(to=str(folder / "copies"))
        repository.verify(level="data")
        with repository.writer() as writer:
            writer.add("damaged/one.txt", b"one" * 100)
            writer.add("damaged/two.txt", b"two" * 100)
        location = repository.locate("damaged/two.txt")
        chunk = Path(repository.object_of(location))
        chunk.chmod(0o600)
        with chunk.open("r+b") as file:
            file.seek(location.start_byte)
            file.write(b"X")
        repository.verify(level="data")


def files() -> dict[str, bytes]:
    found = {f"notes/{number:03}.txt": f"note {number}\n".encode() * 4 for number in range(120)}
    found |= {f"odd/{name}": name.encode() for name in HOSTILE}
    return found | {
        "page.html": b"<!doctype html><title>x</title><script>document.title = 'ran'</script><h1>Archived</h1>",
        "drawing.svg": b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>',
        "cat.png": PICTURE,
        "sound.wav": sound(),
        "random.bin": bytes(range(256)) * 40,
        "empty": b"",
        "long.txt": ("A line of text that goes on. " * 8 + "\n").encode() * 400,
    }


def pages(repository: cafcat.Repository) -> dict[str, str]:
    """Return the URL of each page, below /-/, by a name."""
    urls = {
        name: name for name in ("overview", "browse", "search", "chunks", "runs", "findings", "stores", "views")
    }
    chunks = list(repository.chunks())
    runs = repository.runs(1)
    urls |= {f"view-{name}": f"view?name={name}" for name in VIEWS}
    if chunks:
        urls["chunk"] = f"chunk?{urlencode({'uuid': chunks[0].uuid})}"
        urls["damaged"] = f"chunk?{urlencode({'uuid': chunks[-1].uuid})}"
        names = {"folder": "browse?path=photos/notes/", "text": "file?path=photos/notes/001.txt"}
        names |= {"image": "file?path=photos/cat.png", "audio": "file?path=photos/sound.wav"}
        names |= {"hex": "file?path=photos/random.bin", "odd": "browse?path=photos/odd/"}
        names |= {"view-sorted": "view?name=chunk_health&sort=dead_bytes&order=desc"}
        names |= {"view-lost": f"view?{urlencode({'name': 'lost_with', 'chunk': chunks[-1].uuid})}"}
        names |= {"view-history": "view?name=file_history&file_path=photos/notes/001.txt"}
        names |= {"view-changes": "view?name=changes_between&first_run=1&last_run=2"}
        names |= {"found": "search?q=photos/**/0?1.txt", "retired": "chunks?state=retired"}
        urls |= names
    if runs:
        urls["run"] = f"run?id={runs[0].id}"
    return urls
