"""One file: where its bytes are, its history, a preview, and the commands that read and check it."""

from cafcat.catalog.console.chunks import chunk, copies
from cafcat.serve.console.page import Content, Page, Visit
from cafcat.serve.console.previews import preview_of
from cafcat.support.shell import shell_name

__all__ = ["PAGE"]


def file(visit: Visit) -> Content:
    """Return the values of a file's page. Without a present file, the page shows the former ones."""
    path = visit.visible_path("path")
    repository = visit.repository
    files = repository.session.catalog.reading.files
    location = files.locate_many([path]).get(path)
    history = repository.history(path)
    content: Content = {
        "title": path.rsplit("/", 1)[-1],
        "path": path,
        "folder": path.rpartition("/")[0],
        "location": location,
        "history": history,
        "is_owner": visit.visitor.sees_all,
    }
    if location is None:
        can_undelete = bool(history) and history[0].reason == "removed" and history[0].is_kept
        return content | {"undelete": _undelete(path) if can_undelete else None}
    found = chunk(visit.queries, location.chunk)
    return content | {
        "copies": []
        if found is None
        else [row for row in copies(visit.queries, found["id"]) if not row["deleted_at"]],
        "object": repository.object_of(location),
        "preview": preview_of(repository, location, names_stores=visit.visitor.sees_all),
        "commands": _commands(path, str(location.chunk)),
    }


def _undelete(path: str) -> str:
    before, word = shell_name(path)
    return f"{before}cafcat undelete -- {word}"


def _commands(path: str, chunk_uuid: str) -> list[tuple[str, str]]:
    """Return what can be done with a file, and the command for it."""
    before, word = shell_name(path)
    return [
        ("Write the file to disk", f"{before}cafcat get -- {word}"),
        ("Print the file", f"{before}cafcat cat -- {word}"),
        ("Show how to read it without cafcat", f"{before}cafcat locate -- {word}"),
        ("Verify its chunk now", f"cafcat verify --level data --chunk {chunk_uuid}"),
    ]


PAGE = Page("file", "File", file, shows_all=False)
