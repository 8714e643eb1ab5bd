"""How many examples the property tests try: `make fuzz` sets HYPOTHESIS_PROFILE=fuzz."""

import os

from hypothesis import settings

# No deadline: how long an example takes says more about the machine than about the code.
settings.register_profile("plain", deadline=None)
settings.register_profile("fuzz", deadline=None, max_examples=10_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "plain"))
