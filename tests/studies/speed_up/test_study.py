"""wb.speed_up over real processes; and what this machine can do, measured."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.pairwise import first
from workbench.rank.main import cores_of
from workbench.shared_memory.segments import process_state
from workbench.studies.speed_up.cases import cases
from workbench.studies.speed_up.ceiling import KernelProcesses, ceilings
from workbench.studies.speed_up.display import as_texts, chart_bundle, table_bundle
from workbench.studies.speed_up.study import Study, speed_up


def small(**fields: Any) -> wb.Experiment:
    return wb.Experiment(**{"iterations": 6, "batch_size": 24, "threads": 1, **fields})


# -- which cases --


def test_every_combination_is_a_case() -> None:
    combinations = cases(small(), (2, 1), "strong", {"batch_size": (32, 64), "bind": (False, True)})
    assert len(combinations) == 8 and len({case.name for case in combinations}) == 8
    assert combinations[0].name == "batch size 32, not bound, 1 rank"
    assert [case.ranks for case in combinations[:2]] == [1, 2]
    assert {(c.experiment.batch_size, c.experiment.bind) for c in combinations} == {
        (32, False),
        (32, True),
        (64, False),
        (64, True),
    }


def test_weak_scaling_gives_each_rank_the_minibatch() -> None:
    sizes = [case.experiment.batch_size for case in cases(small(), (1, 2, 4), "weak", {})]
    assert sizes == [24, 48, 96]


def test_values_may_have_names_and_links_of_ranks_that_are_missing_are_left_out() -> None:
    slow = wb.Network(links={(0, 1): wb.Link(latency="1 ms")})
    combinations = cases(small(network=slow), (1, 2), "strong", {"task": {"own": "lenet_digits"}})
    assert [case.name for case in combinations] == ["own, 1 rank", "own, 2 ranks"]
    one, two = combinations
    assert not one.experiment.network.links and two.experiment.network == slow


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"ranks": ()}, "ranks = "),
        ({"ranks": (2, 2)}, "ranks = "),
        ({"ranks": (0,)}, "ranks = "),
        ({"scaling": "big"}, "must be .strong. or .weak."),
        ({"repeats": 0}, "repeats = 0"),
        ({"batch": (1, 2)}, "batch = "),
        ({"seed": (1, 2)}, "seed = "),
        ({"batch_size": ()}, "nothing to sweep"),
        ({"batch_size": (0,)}, "batch_size"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(wb.SpecError, match=words):
        speed_up(small(), **fields)


# -- the machine --


def test_what_the_machine_can_do_is_measured_and_leaves_no_process() -> None:
    with KernelProcesses("compute", 2) as kernels:
        assert kernels.rate(1, 0.05) > 0 and kernels.rate(2, 0.05) > 0
        pids = [process.pid for process in kernels.processes]
    assert all(process_state(pid) in "ZX" for pid in pids)
    limits = ceilings((1, 2), seconds=0.05)
    assert set(limits) == {"compute", "copy"} and limits["copy"][1] == 1
    assert 0.3 < limits["compute"][2] < 8


def test_a_process_that_fails_to_measure_is_an_error() -> None:
    with (
        pytest.raises(wb.WorkbenchError, match="ended with code"),
        KernelProcesses("nonsense", 1) as kernels,
    ):
        kernels.rate(1, 0.01)
        kernels.rate(1, 0.01)


def test_a_rank_keeps_to_cores_of_its_own() -> None:
    assert [cores_of(rank, 1, {4, 5, 6}) for rank in range(4)] == [{4}, {5}, {6}, {4}]
    assert [cores_of(rank, 2, {0, 1, 2, 3}) for rank in range(3)] == [{0, 1}, {2, 3}, {0, 1}]
    assert cores_of(0, 8, {0, 1}) == {0, 1}


class Bound:
    """A task whose metric is the number of cores that its rank may use."""

    def model(self) -> Any:
        import torch

        return torch.nn.Linear(2, 1)

    def dataset(self, split: str) -> Any:
        import torch

        return torch.utils.data.TensorDataset(torch.ones(8, 2))

    def loss(self, model: Any, batch: Any) -> Any:
        return model(batch[0]).square().mean()

    def metrics(self, model: Any, batch: Any) -> dict[str, float]:
        import os

        return {"cores": float(len(os.sched_getaffinity(0)))}


@pytest.mark.full
@pytest.mark.parametrize("bind", first(1, [True, False]))
def test_bound_ranks_may_use_no_other_core(bind: bool) -> None:
    exp = wb.Experiment(task=Bound, ranks=2, iterations=1, batch_size=4, threads=1, bind=bind)
    core_count = wb.run(exp).wait(timeout=60).metrics["cores"]
    assert core_count == (1 if bind else len(os.sched_getaffinity(0)))


# -- a study --


def test_strong_scaling_shares_out_what_is_padded() -> None:
    """As samples are; a pipeline's pad is of a microbatch, and that of weak scaling of a rank."""
    padded = small(pad_compute="30 ms")
    strong = cases(padded, (1, 2, 3), "strong", {})
    assert [case.experiment.pad_compute_ns for case in strong] == [30_000_000, 15_000_000, 10**7]
    weak = cases(padded, (1, 2), "weak", {})
    assert [case.experiment.pad_compute_ns for case in weak] == [30_000_000] * 2
    piped = padded.replace(strategy="pipeline", ranks=2, options={"microbatches": 4})
    assert cases(piped, (2, 4), "strong", {})[1].experiment.pad_compute == "30 ms"


@pytest.mark.alone
def test_strong_scaling_of_padded_training_gains_and_says_what_it_costs() -> None:
    study = speed_up(small(pad_compute="300 ms"), ranks=(1, 2), repeats=1, ceiling=False)
    study.wait(timeout=120)
    one, two = study.table.iter_rows(named=True)
    assert 1.3 < two["speed_up"] < 2.1 and two["rank_seconds"] > 0.9 * one["rank_seconds"]
    assert one["seconds"] > 0.29 and one["repeats"] == 1
    assert two["exposed_share"] is not None and two["core_wait_share"] is not None
    assert two["compute_ceiling"] is None and "padded" not in str(study)


@pytest.mark.full
def test_weak_scaling_of_padded_training_is_ideal() -> None:
    study = speed_up(
        small(pad_compute="200 ms"), ranks=(1, 2), repeats=1, scaling="weak", ceiling=False
    ).wait(timeout=120)
    assert study.table["speed_up"][1] > 1.4
    assert study.table["batch_size"].to_list() == [24, 48]


def test_a_study_shows_the_machine_and_is_kept(tmp_path: Path) -> None:
    def begin() -> Study:
        return wb.speed_up(small(), ranks=(1, 2), repeats=1, folder=tmp_path)

    study = begin().wait(timeout=120)
    table = study.table
    assert table["compute_ceiling"].null_count() == 0 and len(study.words) >= 2
    assert len([*tmp_path.glob("*.parquet")]) == 2
    again = begin().wait(timeout=120)
    assert (
        "2 from" in again.state and again.table["seconds"].to_list() == table["seconds"].to_list()
    )
    bundle = chart_bundle(study)
    assert "This machine gives" in bundle["image/svg+xml"] and len(bundle) == 3
    assert "<table" in table_bundle(study)["text/html"] and as_texts(table).height == 2


def test_a_study_that_is_stopped_is_over_soon() -> None:
    study = speed_up(small(iterations=100_000), ranks=(1, 2), repeats=3, ceiling=False)
    with pytest.raises(wb.RunTimeout, match="it goes on"):
        study.wait(timeout=0.5)
    study.stop()
    study.wait(timeout=60)
    assert study.done and study.table.height == 0


def test_a_case_that_fails_is_said_and_the_others_go_on() -> None:
    dies = (wb.Kill(rank=0, at_iteration=1),)
    study = speed_up(
        small(), ranks=(1,), repeats=1, ceiling=False, faults={"well": (), "dies": dies}
    ).wait(timeout=60)
    assert study.table["series"].to_list() == ["well"]
    assert "SIGKILL" in table_bundle(study)["text/html"]
