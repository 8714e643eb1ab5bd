"""Conformance test suites for formats, stores and sources, built-in ones and those of other packages.

Inherit a suite in a test module, override its fixtures, and run pytest.
"""

import pytest

# A failed assertion of a suite then shows its values, as in any test module.
pytest.register_assert_rewrite("cafcat.testing.formats", "cafcat.testing.sources", "cafcat.testing.stores")
