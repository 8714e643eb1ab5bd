"""CAR passes the suite of cafcat.testing.formats."""

import pytest

from cafcat.formats.base import Format
from cafcat.formats.car import CAR
from cafcat.testing.formats import FormatSuite


class TestCar(FormatSuite):
    @pytest.fixture
    def format(self) -> Format:
        return CAR
