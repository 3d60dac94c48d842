"""Every message in other words: the form still marks the right field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.interface.test_form import test_what_cannot_be_is_said_beside_its_field as of_the_form
from workbench.common.errors import Problem, SpecError
from workbench.interface import form
from workbench.interface.form import FormError

CASES = next(mark for mark in of_the_form.pytestmark if mark.name == "parametrize").args[1]
WORDS = "Das geht so nicht"


@pytest.fixture
def other_words(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = SpecError.__init__

    def reworded(self: SpecError, message: str = "", *, problems: Sequence[Problem] = ()) -> None:
        plain(self, WORDS, problems=[replace(one, message=WORDS, remedy="") for one in problems])

    monkeypatch.setattr(SpecError, "__init__", reworded)


@pytest.mark.usefixtures("other_words")
@pytest.mark.parametrize(("values", "field", "words"), CASES)
def test_the_form_marks_the_field_whatever_the_words(
    values: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(FormError) as raised:
        form.experiment(values)
    assert list(raised.value.fields) == [field]
    assert WORDS in raised.value.fields[field] or not field, words
