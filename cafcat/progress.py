"""What the use cases report while they work. The default is silent; the command line draws it."""

from cafcat.model import FileProblem

__all__ = ["Progress"]


class Progress:
    """Override what you want to see. Calls come from one thread, often: keep them cheap."""

    def begin(self, verb: str, *, files: int | None = None, size_bytes: int | None = None) -> None:
        """Work begins; totals are None where they are not known beforehand."""

    def advance(self, files: int, size_bytes: int) -> None:
        """That many more files and bytes are done."""

    def problem(self, problem: FileProblem) -> None:
        """A file was skipped, refused or failed."""

    def warn(self, message: str) -> None:
        """Something that the user should know, once."""

    def chunk_committed(self, chunk: str, files: int, size_bytes: int) -> None:
        """A chunk and all its mappings are durable and in the catalog."""

    def end(self) -> None:
        """Work has ended, well or not."""
