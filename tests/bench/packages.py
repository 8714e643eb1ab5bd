"""Python packages that only peers need: installed into a folder of the bench, if that is wanted."""

import importlib.util
import sys

from tests.bench.bench import Bench
from tests.bench.timing import run


def provide(bench: Bench, package: str) -> None:
    """Installs it with --install-peers, unless it is there; what cannot be had stays missing."""
    if not bench.install_peers or importlib.util.find_spec(package) is not None:
        return
    folder = bench.folder / "packages"
    try:
        run(sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), package)
    except RuntimeError as error:
        bench.say(f"could not install {package}: {error}")
        return
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    importlib.invalidate_caches()
