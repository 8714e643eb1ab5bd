"""The command `cafcat store check`, which tries the features of a store."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cafcat.cli.call import Call

if TYPE_CHECKING:
    from cafcat.stores.probing import Finding

__all__ = ["check"]

_WORDS = {True: "yes", False: "no", None: "not tried"}


def check(
    call: Call,
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Folder, URL or name of the store.", show_default=False)
    ],
) -> int | None:
    """Find out which features a store has.

    Writes small objects below the store's prefix, and removes them. If the catalog has the store, the result is
    stored in the catalog. docs/s3.md lists how cafcat replaces missing features.
    """
    with call.repository() as repository:
        checked = repository.check_store(url)
    document = {
        "store": checked.url,
        "usable": checked.is_usable,
        "remembered": checked.is_remembered,
        "findings": [finding._asdict() for finding in checked.findings],
    }
    call.output.show(document, _table(checked.findings))
    return None if checked.is_usable else 1


def _table(findings: "Sequence[Finding]") -> Iterator[str]:
    width = max((len(finding.feature) for finding in findings), default=0)
    for finding in findings:
        said = "; ".join(text for text in (finding.detail, finding.remedy) if text)
        yield f"{finding.feature:<{width}}  {_WORDS[finding.works]:<9}  {said}".rstrip()
