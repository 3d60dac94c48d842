"""``wb.audit``: right programs are right, and each bug is named by parameter, group and factor."""

from __future__ import annotations

from pathlib import Path

import pytest

import workbench as wb

PROGRAMS = Path(__file__).parent / "programs"


def audited(name: str, ranks: int = 2, **options: object) -> wb.Audit:
    """Audit a program; its bug, if any, comes after a colon."""
    program, _, bug = name.partition(":")
    env = {"BUG": bug, **dict(options.pop("env", {}))}  # type: ignore[call-overload]
    return wb.audit(PROGRAMS / f"{program}.py", ranks=ranks, env=env, progress=False, **options)


@pytest.mark.parametrize("name", ["loop", "ddp", "sp"])  # all others: test_verdicts.py
def test_a_right_program_is_right(name: str) -> None:
    result = audited(name)
    assert result.verdict == "RIGHT", str(result)
    assert result.findings == () and result.runs <= 13
    assert {row.parameter for row in result.weights}
    assert all(one is not None and one > 0 for row in result.weights for one in row.weights)


def test_a_missing_sum_is_named_with_its_parameters_group_and_line() -> None:
    result = audited("sp:norm")
    assert result.verdict == "WRONG", str(result)
    names = {"1.norm.weight", "1.norm.bias", "2.norm.weight", "2.norm.bias"}
    assert {one.parameter for one in result.findings} == names
    (group,) = {one.group for one in result.findings}
    assert group == (0, 1)
    assert "none of 6 collectives seen after backward over {0, 1} carries 1.norm" in str(result)
    line = result.findings[0].line
    text = (PROGRAMS / "sp.py").read_text().splitlines()
    assert line.startswith("sp.py:") and "all_reduce" in text[int(line.split(":")[1]) - 1]


def test_a_factor_is_named_with_the_size_that_it_is() -> None:
    result = audited("loop:sum")
    (finding,) = result.findings
    assert finding.factor == pytest.approx(2.0, rel=1e-4) and finding.group == (0, 1)
    assert "(ranks = 2)" in finding.sentence


def test_equal_losses_of_ranks_are_a_question() -> None:
    result = audited("ddp:same_data")
    assert result.verdict == "QUESTION", str(result)
    assert all(one.asks for one in result.findings)
    assert "did they train on the same samples" in result.sentence


def test_a_function_takes_rank_and_size() -> None:
    def train(rank: int, size: int) -> None:
        import torch
        import torch.distributed as dist

        torch.manual_seed(0)
        w = torch.nn.Parameter(torch.randn(3))
        optimizer = torch.optim.SGD([w], lr=0.1)
        (w * (rank + torch.arange(3.0))).square().mean().backward()
        dist.all_reduce(w.grad)
        w.grad /= size
        optimizer.step()

    assert wb.audit(train, ranks=2, progress=False).verdict == "RIGHT"


def test_a_factor_that_could_be_a_sum_is_a_question() -> None:
    """Two samples per rank, times two ranks: each counts 1, as in a sum."""
    result = audited("report_07")
    assert result.verdict == "QUESTION", str(result)
    assert "4 times that of the mean over all samples (microbatches = 2 x ranks" in result.sentence


def test_parameters_are_named_as_in_the_whole_model() -> None:
    """A layer draws its weights before the model that it is a part of is there."""
    from workbench.exercises.wrong_updates import train

    result = wb.audit(train, ranks=4, env={"BUG": ""}, progress=False)
    names = {one.parameter for one in result.weights}
    assert names == {"up.weight", "down.weight", "bias", "norm.weight", "norm.bias"}
    assert result.verdict == "RIGHT", result.sentence
