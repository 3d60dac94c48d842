"""Recovery policies of the user's own, and errors of the user's own code."""

from __future__ import annotations

from typing import Any

import pytest

import workbench as wb
from tests.live import gone, lenet, until
from tests.recovery.test_policies import assert_as_sequential, experiment
from workbench.store.recoveries import recoveries_of


def replace_once(failure: Any) -> Any:
    """Replace the first time, then shrink."""
    return failure.replace() if failure.number == 0 else failure.shrink()


def test_a_policy_is_a_function_of_the_users_own() -> None:
    kills = [wb.Kill(rank=r, at_iteration=i) for r, i in ((0, 2), (1, 5))]
    exp = experiment("data_parallel", 3, recovery=replace_once, faults=kills)
    assert wb.Experiment.from_yaml(exp.to_yaml(), allow_code=True) == exp
    run = wb.run(exp)
    assert_as_sequential(run, run.wait(timeout=90), {0, 2})
    each = [(one.lost, one.members) for one in recoveries_of(run.store.metadata)]
    assert each == [({"0": "killed"}, (0, 1, 2)), ({"1": "killed"}, (0, 2))]


def raising(failure: Any) -> Any:
    raise KeyError(list(failure.lost))


def nonsense(failure: Any) -> Any:
    return "the others"


def gives_up(failure: Any) -> Any:
    return None


@pytest.mark.full
@pytest.mark.parametrize(
    ("policy", "error", "words"),
    [
        (raising, wb.RankError, r"policy raising raised KeyError: \[1\]"),
        (nonsense, wb.RankError, "policy nonsense returned 'the others': it returns failure.shr"),
        (gives_up, wb.PeerLost, "rank 1 .* was killed by SIGKILL in iteration 3"),
        ("abort", wb.PeerLost, "rank 1 .* was killed by SIGKILL in iteration 3"),
    ],
)
def test_a_policy_that_ends_the_run_or_fails_is_told(policy: Any, error: Any, words: str) -> None:
    kill = wb.Kill(rank=1, at_iteration=2)
    run = wb.run(experiment("data_parallel", 3, recovery=policy, faults=kill))
    pids = dict(run.pids)
    with pytest.raises(error, match=words):
        run.wait(timeout=60)
    until(lambda: gone(pids.values()), 10, "the ranks' end")


def test_an_error_of_the_users_own_code_is_not_a_loss_to_recover_from() -> None:
    run = wb.run(lenet(task=Raises, recovery="shrink", iterations=6))
    with pytest.raises(wb.RankError, match="no such sample"):
        run.wait(timeout=60)


class Raises:
    """A task whose loss raises in the third iteration of rank 1."""

    def model(self) -> Any:
        import torch

        return torch.nn.Linear(4, 1)

    def dataset(self, split: str) -> Any:
        import torch

        return torch.utils.data.TensorDataset(torch.ones(64, 4))

    def loss(self, model: Any, batch: Any) -> Any:
        import torch.distributed as dist

        self.calls = getattr(self, "calls", 0) + 1
        if self.calls == 3 and dist.get_rank() == 1:
            raise LookupError("no such sample")
        return model(batch[0]).square().mean()
