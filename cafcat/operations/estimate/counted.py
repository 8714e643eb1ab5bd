"""Numbers of files that were counted or estimated, with their uncertainty."""

from dataclasses import dataclass, field

from cafcat.model import SourceFile
from cafcat.operations.estimate.sizes import Sizes
from cafcat.sources.base import ListedPage

__all__ = ["Counted", "counted"]


@dataclass(frozen=True, slots=True)
class Counted:
    """Counted or estimated files.

    Attributes:
        sizes: The files by size.
        objects_variance: Variance of the number of files; 0 if they were counted.
        bytes_variance: Variance of their bytes.
    """

    sizes: Sizes = field(default_factory=Sizes)
    objects_variance: float = 0.0
    bytes_variance: float = 0.0

    @property
    def is_exact(self) -> bool:
        """True if all files were counted."""
        return self.objects_variance == 0

    def scaled(self, factor: float) -> "Counted":
        """Return `factor` times as many files."""
        square = factor * factor
        return Counted(self.sizes.scaled(factor), self.objects_variance * square, self.bytes_variance * square)

    def __add__(self, other: "Counted") -> "Counted":
        return Counted(
            self.sizes + other.sizes,
            self.objects_variance + other.objects_variance,
            self.bytes_variance + other.bytes_variance,
        )


def counted(page: ListedPage) -> Counted:
    """Return the files of a page."""
    return Counted(Sizes.of(item.size_bytes for item in page.files if isinstance(item, SourceFile)))
