"""A rank allocates its share of what a server gives to a run, and not a byte more."""

from __future__ import annotations

import pytest

import workbench as wb
from tests.live import over_in_the_end
from workbench.rank.allocation import NAME


@pytest.mark.parametrize(("width", "fits"), [(1_000, True), (12_000, False)])
def test_a_model_beyond_its_share_is_refused_by_the_system(
    monkeypatch: pytest.MonkeyPatch, width: int, fits: bool
) -> None:
    """576 MB of weights, where a rank may have 100 and 256 MB: no second passes before that."""
    monkeypatch.setenv(NAME, "200_000_000")
    options = {"layers": 1, "width": width}
    exp = wb.Experiment(
        task="mlp_layers", task_options=options, ranks=2, iterations=2, batch_size=8, threads=1
    )
    with over_in_the_end(wb.run(exp)) as run:
        result = run.wait(120, check=False)
    assert result.ok == fits, result.error
    if not fits:
        assert "could not allocate more memory" in str(result.error)
        assert "(--max-memory)" in str(result.error) and "Traceback" not in str(result.error)


def test_a_memory_limit_is_not_taken_for_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error keeps its type and names the experiment's own limit, in a web app too."""
    monkeypatch.setenv(NAME, "400_000_000")
    exp = wb.Experiment(task="lenet_digits", ranks=1, iterations=1, memory_limit="1 MB", threads=1)
    with over_in_the_end(wb.run(exp)) as run:
        error = run.wait(60, check=False).error
    assert isinstance(error, wb.MemoryLimit) and "--max-memory" not in str(error), error
