"""The flag `--cluster`, which several commands share, and the executor that it names."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from cafcat.errors import InvalidInput

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["Cluster", "SharePassword", "executor_of"]

Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="URL",
        help="Work on the workers of a cluster: dask://HOST:8786, ray://HOST:10001, local://N.",
    ),
]
SharePassword = Annotated[
    bool,
    typer.Option("--share-password", help="With --cluster: send the password of the database to the workers."),
]


@contextmanager
def executor_of(cluster: str | None, *, share_password: bool) -> Iterator["Executor | None"]:
    """Yield the executor of a cluster; None if this process does the work, with its own workers.

    Args:
        cluster: The value of `--cluster`.
        share_password: The value of `--share-password`.

    Raises:
        InvalidInput: `--share-password` is given without `--cluster`.
    """
    if share_password and cluster is None:
        hint = "leave --share-password out, or add --cluster"
        raise InvalidInput("--share-password is for --cluster only", hint=hint)
    if cluster in (None, "local"):
        yield None
        return
    from cafcat.clusters.opening import open_cluster

    with open_cluster(cluster) as opened:
        yield opened.executor
