"""The findings of one check: the first thousand of each kind in full, and the number of further ones."""

from collections import Counter
from typing import Final, NamedTuple

from cafcat.model import Finding, FindingKind

__all__ = ["MOST_FINDINGS", "Findings"]

MOST_FINDINGS: Final = 1000


class _Further(NamedTuple):
    """The findings of one kind that are only counted, and how many files they concern."""

    findings: int
    files: int


_NONE: Final = _Further(0, 0)


class Findings:
    """Keeps the first thousand findings of each kind of one check in full, and counts further ones."""

    def __init__(self, most: int = MOST_FINDINGS, *, is_live: bool = True) -> None:
        """Start an empty collection of findings.

        Args:
            most: Number of findings of each kind that are kept in full. Further ones are counted.
            is_live: False if no live file needs the checked object. Then no finding is live (`Finding.is_live`).
        """
        self._most = most
        self._is_live = is_live
        self._found: list[Finding] = []
        self._kept: Counter[FindingKind] = Counter()
        self._more: dict[tuple[FindingKind, bool], _Further] = {}

    def add(
        self,
        kind: FindingKind,
        detail: str,
        path: str | None = None,
        start_byte: int | None = None,
        end_byte: int | None = None,
        *,
        file_count: int | None = None,
        is_live: bool = True,
    ) -> None:
        """Add a finding. If the list is full for its kind, the finding is only counted.

        Args:
            kind: Kind of the finding.
            detail: Description of the damage, in one line.
            path: Path of the file; None if the finding concerns no single file.
            start_byte: First byte of the damaged span; None if the finding is not about bytes.
            end_byte: The byte after the span.
            file_count: Number of damaged files. None stands for 1 with a path, and for 0 without one.
            is_live: False if no live file needs the damaged bytes.
        """
        is_live = is_live and self._is_live
        if file_count is None:
            file_count = 0 if path is None else 1
        if self._kept[kind] < self._most:
            self._kept[kind] += 1
            self._found.append(Finding(kind, detail, path, start_byte, end_byte, file_count, is_live))
        else:
            findings, files = self._more.get((kind, is_live), _NONE)
            self._more[kind, is_live] = _Further(findings + 1, files + file_count)

    def count(self, kind: FindingKind) -> int:
        """Return the number of findings of a kind, whether they are listed or only counted."""
        return self._kept[kind] + sum(more.findings for (of, _), more in self._more.items() if of is kind)

    def change(self, kind: FindingKind, into: FindingKind, *, before: str = "", after: str = "") -> None:
        """Change all findings of one kind to another kind, because a later check showed the reason.

        Args:
            kind: Kind of the findings to change.
            into: The new kind.
            before: Text to put before the description of each listed finding.
            after: Text to put after that description.
        """
        for n, finding in enumerate(self._found):
            if finding.kind is kind:
                self._found[n] = finding._replace(kind=into, detail=f"{before}{finding.detail}{after}")
        self._kept[into] += self._kept.pop(kind, 0)
        for is_live in (True, False):
            changed, before_it = self._more.pop((kind, is_live), _NONE), self._more.get((into, is_live), _NONE)
            if changed.findings:
                self._more[into, is_live] = _Further(*(sum(pair) for pair in zip(changed, before_it, strict=True)))

    def listed(self) -> list[Finding]:
        """Return the findings that were kept in full, then the number of further ones, as a Finding for each kind.

        Findings of one kind are counted separately if they differ in `is_live`.
        """
        more = [
            Finding(kind, f"and {more.findings:,} more of this kind", file_count=more.files, is_live=is_live)
            for (kind, is_live), more in self._more.items()
        ]
        return self._found + more

    def __bool__(self) -> bool:
        return bool(self._found)
