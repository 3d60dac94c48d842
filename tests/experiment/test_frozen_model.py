"""An Experiment with many mistakes: the first are told, the rest counted."""

import pytest

from workbench.common.errors import SpecError
from workbench.experiment.spec import Experiment


def test_of_many_problems_the_first_are_told_and_the_rest_counted() -> None:
    """Each costs a search for the nearest name, in a server for each visitor with a link."""
    with pytest.raises(SpecError, match="and 950 more") as caught:
        Experiment(**{f"a{number}": 1 for number in range(1_000)})  # type: ignore[arg-type]
    assert len(caught.value.problems) == 50
