"""Opens a cluster that is named by a URL."""

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from cafcat.errors import InvalidInput

__all__ = ["Cluster", "open_cluster"]

_PORTS: Final = {"dask": 8786, "ray": 10001}
"""Port of a cluster whose URL has none, by the scheme of the URL: the defaults of Dask and Ray."""
_HINT: Final = "write dask://HOST:8786, ray://HOST:10001, local or local://N"


@dataclass(frozen=True)
class Cluster:
    """An open cluster.

    Attributes:
        url: The URL of the cluster.
        executor: Runs calls on the workers of the cluster.
    """

    url: str
    executor: Executor


@contextmanager
def open_cluster(url: str) -> Iterator[Cluster]:
    """Connect to a cluster, and yield it. At the end, calls that have not begun are cancelled.

    Args:
        url: `dask://HOST:8786` or `ray://HOST:10001` for a cluster of that engine; the port can be left out.
            `local` for processes on this host, one per processor; `local://N` for N processes.

    Raises:
        InvalidInput: The URL is not one of these.
        NotInstalled: The library of the engine is missing.
        Unavailable: The scheduler does not answer within ten seconds, or has no workers.
    """
    scheme, host, number = _parts(url)
    executor: Executor
    if scheme == "local":
        from cafcat.clusters.local import open_local

        with open_local(number) as executor:
            yield Cluster(url, executor)
    elif scheme == "dask":
        from cafcat.clusters.dask import open_dask

        with open_dask(host, number) as executor:
            yield Cluster(url, executor)
    else:
        from cafcat.clusters.ray import open_ray

        with open_ray(host, number) as executor:
            yield Cluster(url, executor)


def _parts(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of a cluster; for local processes "local", "" and their number, or 0."""
    try:
        split = urlsplit(url if "://" in url else f"{url}://")
        port, host = split.port, split.hostname or ""
    except ValueError as error:
        raise InvalidInput(f"the URL of a cluster is invalid: {url}", hint=_HINT) from error
    if split.path.strip("/") or split.query or split.fragment or split.username is not None:
        raise InvalidInput(f"the URL of a cluster has more than a host and a port: {url}", hint=_HINT)
    if split.scheme == "local":
        if port is not None or (host and not (host.isascii() and host.isdecimal() and int(host) > 0)):
            raise InvalidInput(f"the number of local processes must be at least 1: {url}", hint=_HINT)
        return "local", "", int(host or 0)
    if split.scheme not in _PORTS or not host:
        raise InvalidInput(f"no cluster has the URL {url}", hint=_HINT)
    return split.scheme, host, port or _PORTS[split.scheme]
