"""The formats that cafcat ships pass the suite of cafcat.testing.formats."""

import pytest

from cafcat.formats.base import Format
from cafcat.formats.chunkio import CHUNKIO
from cafcat.formats.databundle import DATABUNDLE
from cafcat.formats.registry import by_name
from cafcat.testing.formats import FormatSuite


class TestCaf(FormatSuite):
    @pytest.fixture
    def format(self) -> Format:
        return by_name("caf")


class TestChunkIo(FormatSuite):
    @pytest.fixture
    def format(self) -> Format:
        return CHUNKIO


class TestDataBundle(FormatSuite):
    @pytest.fixture
    def format(self) -> Format:
        return DATABUNDLE
