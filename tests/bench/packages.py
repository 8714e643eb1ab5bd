"""Python packages that only peers need, installed into a folder of the bench if requested."""

import importlib.util
import sys

from tests.bench.bench import Bench
from tests.bench.timing import run


def provide(bench: Bench, package: str) -> None:
    """Install a missing package if --install-peers is given. If that fails, the package stays missing."""
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
