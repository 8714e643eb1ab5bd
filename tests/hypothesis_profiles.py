"""Profiles of hypothesis: HYPOTHESIS_PROFILE has the name of one, `plain` without it.

A profile that is explored by a verb of make has the name of that verb.

* `plain`: the same examples in every run (`make test`).
* `explore`: other examples in every run, from a seed that is printed (`make explore`, and CI).
* `fuzz`: as `explore`, 10,000 examples each (`make fuzz`).
* `nightly`: as `explore`; test_state_machine.py has the number of examples (`make nightly`).
"""

import importlib
import os
import pkgutil

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

__all__ = ["PLAIN", "PROFILE", "load_profile", "replay_hint"]

PLAIN = "plain"
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", PLAIN)

# Each profile states what hypothesis sets otherwise where the variable CI is set.
# How long an example takes depends on the machine more than on the code.
_TIMELESS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
_EXPLORING = settings(_TIMELESS, derandomize=False, print_blob=True)


def load_profile(name: str = PROFILE) -> None:
    """Make the profile the default of every test that is imported after this call."""
    settings.register_profile(PLAIN, _TIMELESS, derandomize=True)
    settings.register_profile("explore", _EXPLORING)
    settings.register_profile("fuzz", _EXPLORING, max_examples=10_000)
    settings.register_profile("nightly", _EXPLORING)
    settings.load_profile(name)
    if name == PLAIN:
        _draw_no_constants_of_loaded_modules()
    else:
        _import_all_of_cafcat()


def replay_hint(seed: str | None) -> str | None:
    """Return the command that draws the same examples once more; None if every run draws the same ones."""
    if PROFILE == PLAIN or seed is None:
        return None
    return f"make {PROFILE} SEED={seed}"


def _draw_no_constants_of_loaded_modules() -> None:
    """Draw examples that depend neither on the tests that ran before nor on the path of the clone.

    hypothesis draws constants from the source of every loaded module of the project, unless the module is in a
    folder named `test` or `tests`. There is no setting for this: therefore pyproject.toml pins its version.
    """
    providers._get_local_constants = providers.Constants


def _import_all_of_cafcat() -> None:
    """Let hypothesis draw constants of the whole project. Then a seed always draws the same examples."""
    import cafcat

    for module in pkgutil.walk_packages(cafcat.__path__, "cafcat."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
