"""``Experiment.audit()``: strategies are judged by what their traits promise."""

from __future__ import annotations

import pytest

import workbench as wb
from workbench.experiment.promise import promise_of
from workbench.user_code.source import available

# Those whose update is the gradient of the whole minibatch, and the ranks to try them on.
WHOLE = {"data_parallel": 2, "ddp": 2, "fsdp": 2, "fusion": 2, "zero": 2, "sequential": 1}


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        pytest.param(name, ranks, marks=[pytest.mark.full] if name != "fusion" else [])
        for name, ranks in WHOLE.items()
    ],
)
def test_an_update_of_the_whole_minibatch_is_right(name: str, ranks: int) -> None:
    result = wb.Experiment(strategy=name, ranks=ranks, batch_size=16).audit(progress=False)
    assert result.verdict == "RIGHT", str(result)


def test_other_promises_are_not_judged() -> None:
    result = wb.Experiment(strategy="local_sgd", ranks=2).audit(progress=False)
    assert result.verdict == "ABSTAINS" and "between averages of the parameters" in result.sentence
    assert result.runs == 0
    compressed = wb.Experiment(strategy="ddp", ranks=2, options={"compression": "fp16"})
    assert promise_of(compressed) == "compressed"


def test_every_strategy_says_what_an_update_is_made_of() -> None:
    from workbench.experiment.traits import traits_of

    assert [one for one in available("strategies") if not traits_of(one).update] == []
