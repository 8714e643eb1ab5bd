"""Conformance test suites for formats, stores and sources, also those of other packages.

Inherit a suite, override its fixtures, and run pytest.
"""

import pytest

# A failed assertion of a suite shows its values, as in the reader's own tests.
pytest.register_assert_rewrite("cafcat.testing.formats", "cafcat.testing.sources", "cafcat.testing.stores")
