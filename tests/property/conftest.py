"""How many examples the property tests try: `make fuzz` sets HYPOTHESIS_PROFILE=fuzz, `make nightly` nightly."""

import os

from hypothesis import settings

# No deadline: how long an example takes says more about the machine than about the code.
settings.register_profile("plain", deadline=None)
settings.register_profile("fuzz", deadline=None, max_examples=10_000)
settings.register_profile("nightly", deadline=None)  # test_state_machine.py says how many
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "plain"))
