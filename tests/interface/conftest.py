"""A laboratory that is closed after its test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import workbench as wb
from tests.conftest import remains
from tests.interface.laboratory import threads
from workbench.interface.laboratory.panel import Lab


@pytest.fixture
def lab() -> Iterator[Lab]:
    laboratory = wb.lab()
    yield laboratory
    laboratory.close()
    assert remains(threads, 20) == [], "threads outlived the laboratory"
