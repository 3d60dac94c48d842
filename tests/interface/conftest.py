"""A laboratory that is closed after its test."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import workbench as wb
from tests.conftest import remains
from tests.interface.laboratory import threads
from workbench.interface.laboratory.panel import Lab


@pytest.fixture
def lab() -> Iterator[Lab]:
    others = threading.enumerate()
    laboratory = wb.lab()
    yield laboratory
    laboratory.close()
    left = remains(lambda: threads(others), 20)
    assert left == [], "threads outlived the laboratory"
