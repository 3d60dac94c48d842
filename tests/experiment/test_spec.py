"""An Experiment: equal to its YAML, refused where it cannot be, in words that help."""

from __future__ import annotations

import copy
import json
import math
import textwrap
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.experiment.experiments import OWN_TASK, PADS, experiments
from tests.pairwise import named
from workbench.common.errors import SpecError, WorkbenchError
from workbench.experiment.spec import Experiment, Freeze, Jitter, Kill, Link, Network, Slow
from workbench.user_code.source import Source


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(experiments())
def test_yaml_and_json_give_an_equal_experiment(exp: Experiment) -> None:
    assert Experiment.from_yaml(exp.to_yaml(), allow_code=True) == exp
    assert Experiment.from_json(exp.to_json()) == exp


def test_yaml_says_what_matters_and_leaves_defaults_out() -> None:
    link = Link(latency="5 ms", bandwidth="100 Mbit/s")
    exp = Experiment(
        ranks=4,
        network=Network(links={(0, 1): link}),
        faults=[Kill(rank=2, at_iteration=10)],
    )
    assert exp.to_yaml() == textwrap.dedent("""\
        strategy: data_parallel
        task: lenet_digits
        ranks: 4
        iterations: 200
        batch_size: 64
        seed: 0
        network:
          links:
            0->1:
              latency: 5 ms
              bandwidth: 100 Mbit/s
        faults:
        - fault: kill
          rank: 2
          at_iteration: 10
    """)


@pytest.mark.parametrize("mark", ["\x85", "\u2028", "\u2029", "\r"])
def test_every_break_of_a_line_survives_yaml(mark: str) -> None:
    for code in (f"# one{mark}two\n" + OWN_TASK, f"# one{mark}two"):
        exp = Experiment(task=Source(name="MyTask", code=code))
        assert Experiment.from_yaml(exp.to_yaml(), allow_code=True) == exp


def test_source_stands_in_yaml_as_it_was_written() -> None:
    text = Experiment(task=Source(name="MyTask", code=OWN_TASK.replace("\t", ""))).to_yaml()
    assert "  code: |\n    import torch\n\n    class MyTask:\n" in text


def test_yaml_from_a_file_and_its_numbers(tmp_path: Path) -> None:
    exp = Experiment(ranks=3, lr=1e-5)
    exp.to_yaml(tmp_path / "spec.yaml")
    assert Experiment.from_yaml(tmp_path / "spec.yaml") == exp
    assert Experiment.from_yaml(str(tmp_path / "spec.yaml")) == exp
    assert Experiment.from_yaml("lr: 1e-3").learning_rate == 1e-3  # a text to YAML 1.1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("no_such_file.yaml", "no_such_file.yaml cannot be read"),
        ("hello", "not the YAML of an experiment"),
        ("- 1\n- 2", "not the YAML of an experiment"),
        ("a: [\n", "not YAML: line 2, column 1: [^\\n]*$"),
        ("ranks: four\n", "ranks = 'four'"),
        ("1: 2\n", "no field '1'"),
        ("!!python/object/apply:os.getcwd []", "not YAML"),
    ],
)
def test_bad_yaml_is_a_spec_error(text: str, says: str) -> None:
    with pytest.raises(SpecError, match=says):
        Experiment.from_yaml(text)


# Refused, in words that help


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            {"strategy": "data_paralel"},
            ["strategy = 'data_paralel'", "mean 'data_parallel'", "ddp"],
        ),
        ({"task": "lenet_digit"}, ["task = 'lenet_digit'", "did you mean 'lenet_digits'"]),
        ({"all_reduce": "rings"}, ["all_reduce = 'rings'", "mean 'ring'", "auto", "one_shot"]),
        ({"backend": "glo"}, ["backend = 'glo'", "did you mean 'gloo'", "'nccl'"]),
        ({"optimizer": "SGD"}, ["optimizer = 'SGD'", "did you mean 'sgd'"]),
        ({"dtype": "float16"}, ["dtype = 'float16'", "'float32' or 'float64'"]),
        ({"rank": 3}, ["no field 'rank'", "did you mean 'ranks'"]),
        ({"nonsense": 1}, ["no field 'nonsense'", "batch_size"]),
        ({"ranks": 0}, ["ranks = 0", "greater than or equal to 1"]),
        ({"ranks": True}, ["ranks = True", "whole number"]),
        ({"ranks": 2.5}, ["ranks = 2.5", "whole number"]),
        ({"batch_size": 0}, ["batch_size = 0", "equal to 1"]),
        ({"iterations": 0}, ["iterations = 0", "equal to 1"]),
        ({"seed": -1}, ["seed = -1"]),
        ({"threads": 0}, ["threads = 0", "equal to 1"]),
        ({"lr": 0}, ["lr = 0", "greater than 0"]),
        ({"lr": math.nan}, ["lr = nan", "finite"]),
        ({"lr": "fast"}, ["lr = 'fast'", "must be a number"]),
        ({"momentum": 1}, ["momentum = 1", "less than 1"]),
        ({"momentum": 0.9, "optimizer": "adam"}, ["momentum = 0.9", "sgd"]),
        ({"chunk_bytes": 100}, ["chunk_bytes = 100", "multiple of 64"]),
        ({"chunk_bytes": 0}, ["chunk_bytes = 0", "equal to 64"]),
        ({"chunk_bytes": 2**27}, ["chunk_bytes", "67108864"]),
        ({"timeout": 30}, ["timeout = 30", "no unit", "'30 s'"]),
        ({"pad_compute": "20"}, ["pad_compute = '20'", "no unit"]),
        (
            {"pad_compute": {"forward": "1 ms"}},
            ["pad_compute.input_gradient: this field is"],
        ),
        ({"pad_compute": {"forward": "1 mile"}}, ["forward = '1 mile'", "'mile' is not known"]),
        ({"pad_compute": {"fore": "1 ms"}}, ["no field 'fore'", "input_gradient"]),
        ({"pad_compute": PADS}, ["pad_compute = Pads(", "'data_parallel'", "'10 ms'"]),
        ({"pad_compute": PADS, "strategy": "ddp"}, ["'ddp'", "strategy='pipeline'"]),
        ({"memory_limit": "200"}, ["memory_limit = '200'", "'200 MB'"]),
        ({"device": "gpu"}, ["device = 'gpu'", "cuda:0"]),
        ({"backend": "nccl"}, ["device = 'auto'", "'nccl'", "device='cuda'"]),
        ({"backend": "nccl", "device": "cuda:0"}, ["device = 'cuda:0'", "of its own"]),
        ({"strategy": "sequential"}, ["ranks = 4", "'sequential'", "ranks=1"]),
        ({"network": {"latncy": "1 ms"}}, ["network", "no field 'latncy'", "mean 'latency'"]),
        ({"network": {"bandwidth": "fast"}}, ["bandwidth = 'fast'", "'100 Mbit/s'"]),
        ({"network": {"links": {"0-1": {}}}}, ["0-1", '"0->1"']),
        ({"network": {"links": {"1->1": {}}}}, ['links["1->1"]', "to another"]),
        ({"network": {"links": {"0->4": {}}}}, ['links["0->4"]', "no rank 4", "0 to 3"]),
        ({"faults": [{"fault": "kil", "rank": 1}]}, ["faults[0]", "'kill'", "'jitter'"]),
        ({"faults": [{"rank": 1}]}, ["faults[0]", "fault"]),
        ({"options": {"nonsense": 1}}, ["options", "'nonsense'"]),
        ({"strategy": "ddp", "options": {"bucket_cap": 1}}, ["mean 'bucket_cap_mb'"]),
        ({"strategy": "ddp", "options": {"bucket_cap_mb": "big"}}, ["bucket_cap_mb = 'big'"]),
        ({"options": {"x": object()}}, ["options", "x = <object", "not plain"]),
        ({"options": {"x": math.nan}}, ["x = nan"]),
        ({"task_options": {"nonsense": 1}}, ["task_options", "'lenet_digits'", "'nonsense'"]),
        ({"workers": 4}, ["no field 'workers' (did you mean 'ranks'?)"]),
        ({"bind": "socket"}, ["bind = 'socket': must be true or false"]),
        ({"options": 3}, ["options = 3: must be a mapping of names to values"]),
        ({"task": 3}, ["task = 3", "function or class"]),
        ({"task": "nowhere.py:MyTask"}, ["'nowhere.py:MyTask'", "cannot be read"]),
        ({"task": lambda: 0}, ["task", "lambda", "def"]),
    ],
    ids=named,
)
def test_what_cannot_be_is_refused_with_field_value_and_remedy(
    fields: dict[str, Any], says: list[str]
) -> None:
    with pytest.raises(SpecError) as refused:
        Experiment(**fields)
    for words in says:
        assert words in str(refused.value)
    assert isinstance(refused.value, ValueError) and isinstance(refused.value, WorkbenchError)


@pytest.mark.parametrize(
    ("faults", "says"),
    [
        ([Kill(rank=4, at_iteration=0)], "no rank 4; ranks=4 are 0 to 3"),
        ([Slow(rank=7, factor=2)], "no rank 7"),
        ([Kill(rank=1, at_iteration=200)], "never happens: training ends after 200 iterations"),
        ([Kill(rank=1, at_iteration=2), Kill(rank=1, at_iteration=5)], "another Kill"),
        ([Slow(rank=1, factor=2), Slow(rank=1, factor=3)], "another Slow"),
        ([Freeze(rank=1, at_iteration=2, seconds=1)] * 2, "another Freeze"),
        ([Jitter(probability=0.1, factor=6)] * 2, "another Jitter"),
    ],
)
def test_faults_that_cannot_happen_are_refused(faults: list[Any], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        Experiment(ranks=4, faults=faults)


def test_a_rank_whose_place_is_taken_may_be_killed_again() -> None:
    kills = [Kill(rank=1, at_iteration=2), Kill(rank=1, at_iteration=5)]
    assert Experiment(ranks=4, faults=kills, recovery="replace").faults == (*kills,)
    with pytest.raises(SpecError, match="another Kill"):
        Experiment(ranks=4, faults=[kills[0], kills[0]], recovery="replace")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Slow(rank=0, factor=0.5), "Slow.factor = 0.5"),
        (lambda: Slow(rank=0), "Slow.factor: this field is required"),
        (lambda: Jitter(probability=1.5, factor=2), "Jitter.probability = 1.5"),
        (lambda: Jitter(probability=-0.1, factor=2), "Jitter.probability = -0.1"),
        (lambda: Kill(rank=-1, at_iteration=0), "Kill.rank = -1"),
        (lambda: Freeze(rank=0, at_iteration=0, seconds=0), "Freeze.seconds = 0"),
        (lambda: Link(bandwidth="0 MB/s"), "set down to cut the link"),
        (lambda: Network(links={(2, 2): Link()}), "2->2"),
    ],
)
def test_a_part_is_refused_where_it_is_made(make: Any, says: str) -> None:
    with pytest.raises(SpecError, match=says):
        make()


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(SpecError) as refused:
        Experiment(ranks=0, lr=-1, nonsense=1)
    message = str(refused.value)
    assert "ranks = 0" in message and "lr = -1" in message and "'nonsense'" in message


def test_two_freezes_of_a_rank_and_different_faults_are_fine() -> None:
    faults = [Freeze(rank=1, at_iteration=at, seconds=1) for at in (2, 5)]
    exp = Experiment(faults=[*faults, Slow(rank=1, factor=4), Kill(rank=1, at_iteration=9)])
    assert len(exp.faults) == 4
    assert Experiment(faults=Slow(rank=1, factor=1)).faults == (Slow(rank=1, factor=1),)


# Frozen, and helpers


def test_an_experiment_does_not_change() -> None:
    exp = Experiment(strategy="ddp", options={"bucket_cap_mb": 1}, network={"links": {"0->1": {}}})
    with pytest.raises(ValueError, match="frozen"):
        exp.ranks = 2  # type: ignore[misc]
    for mapping in (exp.options, exp.task_options, exp.network.links):
        with pytest.raises(TypeError, match="replace"):
            mapping["x"] = 1  # type: ignore[index]
        with pytest.raises(TypeError, match="replace"):
            mapping.update(x=1)  # type: ignore[call-arg]
    assert copy.deepcopy(exp) == exp


def test_replace_checks_again() -> None:
    exp = Experiment(ranks=4, faults=[Kill(rank=3, at_iteration=1)])
    assert exp.replace(ranks=8).ranks == 8 and exp.ranks == 4
    with pytest.raises(SpecError, match="no rank 3"):
        exp.replace(ranks=2)


def test_quantities_are_given_in_base_units() -> None:
    exp = Experiment(timeout="1.5 s", pad_compute="20 ms", memory_limit="200 MB")
    assert (exp.timeout_ns, exp.pad_compute_ns) == (1_500_000_000, 20_000_000)
    assert exp.memory_limit_bytes == 200_000_000
    assert Experiment().pad_compute_ns is None and Experiment().memory_limit_bytes is None


def test_pads_are_of_forward_input_and_weight_gradient() -> None:
    exp = Experiment(strategy="pipeline", pad_compute=PADS)
    assert exp.pads_ns == PADS.ns == (10_000_000, 20_000_000, 5_000)
    assert exp.pad_compute_ns is None, "an iteration has no duration of its own"
    assert exp == Experiment(strategy="pipeline", pad_compute=PADS.model_dump())
    assert Experiment.from_yaml(exp.to_yaml()) == Experiment.from_json(exp.to_json()) == exp
    assert "pad_compute:\n  forward: 10 ms\n  input_gradient: 20 ms" in exp.to_yaml()
    assert Experiment(strategy="pipeline", pad_compute="2 ms").pads_ns == (2_000_000,) * 3
    assert Experiment(strategy="pipeline").pads_ns is None


def test_a_schedule_is_a_name_or_a_grid() -> None:
    """A grid is data: it travels in YAML as it is."""
    grid = [["0F0", "0B0"], ["1F0", "1B0"]]
    for schedule in (grid, "0F0 0B0\n1F0 1B0"):
        options = {"schedule": schedule, "microbatches": 1}
        exp = Experiment(strategy="pipeline", ranks=2, options=options)
        assert exp.options["schedule"] == schedule
        assert Experiment.from_yaml(exp.to_yaml()) == exp and not exp.carries_code
    with pytest.raises(SpecError, match="did you mean '1f1b'"):
        Experiment(strategy="pipeline", options={"schedule": "1f1"})


def test_learning_rate_defaults_by_optimizer() -> None:
    assert Experiment().lr is None and Experiment().learning_rate == 0.1
    assert Experiment(optimizer="adam").learning_rate == 1e-3
    assert Experiment(optimizer="adam", lr=0.5).learning_rate == 0.5


def test_the_learning_rate_is_scaled_to_the_minibatch_and_grows_to_it() -> None:
    exp = Experiment(lr=0.1, batch_size=256, reference_batch=64, warmup=6)
    assert exp.learning_rate == 0.4
    assert [exp.rate_at(t) for t in range(8)] == pytest.approx(
        [0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.4]
    )
    assert Experiment(lr=0.4, warmup=4).rate_at(0) == pytest.approx(0.1)  # nothing is scaled
    assert exp.replace(warmup=0).rate_at(0) == 0.4
    assert Experiment(lr=0.1, batch_size=16, reference_batch=64, warmup=6).rate_at(0) == 0.025
    with pytest.raises(SpecError, match="reference_batch = 0"):
        Experiment(reference_batch=0)


def test_a_link_takes_from_the_network_what_it_leaves_out() -> None:
    network = Network(
        latency="2 ms", bandwidth="8 Mbit/s", links={(0, 1): Link(latency="5 ms", down=True)}
    )
    there, back = network.link(0, 1), network.link(1, 0)
    assert (there.latency_ns, there.bytes_per_second, there.down) == (5_000_000, 1e6, True)
    assert (back.latency_ns, back.bytes_per_second, back.down) == (2_000_000, 1e6, False)
    assert Network().link(0, 1).bytes_per_second == math.inf
    assert Network().link(0, 1).latency_ns == 0


def test_numpy_numbers_and_tuples_become_plain() -> None:
    import numpy as np

    exp = Experiment(ranks=np.int64(2), lr=np.float32(0.5))
    assert type(exp.ranks) is int and type(exp.lr) is float
    own = Source(name="train", code="class Config:\n    def __init__(self, **any): ...\n")
    exp = Experiment(strategy=own, options={"shares": (0.5, np.float64(0.5)), "n": np.int32(3)})
    assert exp.options == {"shares": [0.5, 0.5], "n": 3}
    assert Experiment.from_yaml(exp.to_yaml(), allow_code=True) == exp


def test_the_schema_describes_every_field_for_forms() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schema = json.loads(json.dumps(Experiment.model_json_schema()))
    assert set(schema["properties"]) == set(Experiment.model_fields)
    records = [schema, *(schema["$defs"][one.__name__] for one in (Network, Link, Kill, Slow))]
    for record in records:
        for name, field in record["properties"].items():
            assert name == "fault" or field.get("description"), name
    assert schema["properties"]["ranks"]["minimum"] == 1
    assert schema["properties"]["lr"]["anyOf"][0]["exclusiveMinimum"] == 0
