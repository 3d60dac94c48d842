"""An Experiment: equal to its YAML, refused where it cannot be, in words that help."""

from __future__ import annotations

import copy
import json
import math
import textwrap
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.pairwise import named
from workbench.errors import SpecError, WorkbenchError
from workbench.source import Source
from workbench.spec import Experiment, Freeze, Jitter, Kill, Link, Network, Pads, Slow
from workbench.spec_checks import configure

OWN_TASK = textwrap.dedent("""
    import torch

    class MyTask:
        def __init__(self, width=8, *, depth=1):
            self.width = width
        def model(self):
            return torch.nn.Linear(self.width, 1)   # "quotes", ünicode, and a tab:\\t
""").lstrip()


PADS = Pads(forward="10 ms", input_gradient="20 ms", weight_gradient="5 us")

# Equal to its YAML

numbers = st.integers(1, 999)
durations = st.builds("{} {}".format, numbers, st.sampled_from(["ns", "us", "ms", "s"]))
rates = st.builds("{} {}".format, numbers, st.sampled_from(["kbit/s", "Mbit/s", "MB/s"]))
bandwidths = rates | st.just("unlimited")
links = st.builds(
    Link, latency=st.none() | durations, bandwidth=st.none() | bandwidths, down=st.booleans()
)


def pairs(ranks: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(0, ranks - 1), st.integers(0, ranks - 1)).filter(
        lambda pair: pair[0] != pair[1]
    )


@st.composite
def hosts(draw: st.DrawFn, ranks: int) -> dict[str, Any]:
    """``levels`` and ``between`` of a Network of so many ranks, or nothing of hosts."""
    levels, rest = list[int](), ranks
    while draw(st.booleans()):
        levels.append(draw(st.sampled_from([p for p in range(1, rest + 1) if rest % p == 0])))
        rest //= levels[-1]
    levels += [rest] if levels else []
    above = len(levels) - 1
    if above < 1:
        return {"levels": levels}
    each = st.lists(links, min_size=above, max_size=above)
    return {"levels": levels, "between": draw(st.none() | links | each)}


@st.composite
def experiments(draw: st.DrawFn) -> Experiment:
    ranks, iterations = draw(st.integers(2, 8)), draw(st.integers(1, 1000))
    rank, at, factor = st.integers(0, ranks - 1), st.integers(0, iterations - 1), st.floats(1, 1e6)
    faults = draw(
        st.lists(
            st.builds(Kill, rank=rank, at_iteration=at)
            | st.builds(Freeze, rank=rank, at_iteration=at, seconds=st.floats(1e-9, 1e6))
            | st.builds(Slow, rank=rank, factor=factor)
            | st.builds(Jitter, probability=st.floats(0, 1), factor=factor),
            max_size=3,
            unique_by=lambda fault: (fault.fault, getattr(fault, "rank", 0)),
        )
    )
    code = st.builds(
        Source,
        name=st.just("own"),
        code=st.just(OWN_TASK) | st.text(st.characters(exclude_categories=["Cs"])),
    )
    cap = st.fixed_dictionaries({"bucket_cap_mb": st.floats(0.1, 100)})
    strategy, options = draw(
        st.tuples(st.just("data_parallel"), st.just({}))
        | st.tuples(st.just("ddp"), cap | st.just({}))
        | st.tuples(st.just("pipeline"), st.fixed_dictionaries({"microbatches": numbers}))
        | st.tuples(code, st.just({}))
    )
    optimizer = draw(st.sampled_from(["sgd", "adam"]))
    pads = st.builds(Pads, forward=durations, input_gradient=durations, weight_gradient=durations)
    return Experiment(
        strategy=strategy,
        options=options,
        task=draw(st.just("lenet_digits") | code),
        ranks=ranks,
        iterations=iterations,
        batch_size=draw(numbers),
        seed=draw(st.integers(0, 2**63 - 1)),
        optimizer=optimizer,
        lr=draw(st.none() | st.floats(0, 1e6, exclude_min=True)),
        momentum=draw(st.floats(0, 0.999)) if optimizer == "sgd" else 0.0,
        warmup=draw(st.integers(0, 1000)),
        reference_batch=draw(st.none() | numbers),
        dtype=draw(st.sampled_from(["float32", "float64"])),
        device=draw(st.sampled_from(["auto", "cpu", "cuda", "cuda:1"])),
        threads=draw(st.none() | numbers),
        memory_limit=draw(st.none() | st.builds("{} MB".format, numbers)),
        all_reduce=draw(st.sampled_from(["ring", "naive", "one_shot", "auto"]) | code),
        chunk_bytes=64 * draw(st.integers(1, 2**20)),
        backend=draw(st.sampled_from(["workbench", *(["gloo"] if strategy != "pipeline" else [])])),
        network=Network(
            latency=draw(durations),
            bandwidth=draw(bandwidths),
            links=draw(st.dictionaries(pairs(ranks), links, max_size=4)),
            **draw(hosts(ranks)),
        ),
        pad_compute=draw(
            st.none() | durations | (pads if strategy == "pipeline" else st.nothing())
        ),
        faults=faults,
        timeout=draw(durations),
        record=draw(st.booleans()),
    )


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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
        ("hello", "neither a file nor"),
        ("- 1\n- 2", "neither a file nor"),
        ("a: [\n", "not YAML"),
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
        ({"pad_compute": {"forward": "1 ms"}}, ["pad_compute: ", "input_gradient is required"]),
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
        ([Kill(rank=1, at_iteration=200)], "never happens; iterations are 0 to 199"),
        ([Kill(rank=1, at_iteration=2), Kill(rank=1, at_iteration=5)], "another Kill"),
        ([Slow(rank=1, factor=2), Slow(rank=1, factor=3)], "another Slow"),
        ([Freeze(rank=1, at_iteration=2, seconds=1)] * 2, "another Freeze"),
        ([Jitter(probability=0.1, factor=6)] * 2, "another Jitter"),
    ],
)
def test_faults_that_cannot_happen_are_refused(faults: list[Any], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        Experiment(ranks=4, faults=faults)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Slow(rank=0, factor=0.5), "Slow.factor = 0.5"),
        (lambda: Slow(rank=0), "Slow.factor is required"),
        (lambda: Jitter(probability=1.5, factor=2), "Jitter.probability = 1.5"),
        (lambda: Jitter(probability=-0.1, factor=2), "Jitter.probability = -0.1"),
        (lambda: Kill(rank=-1, at_iteration=0), "Kill.rank = -1"),
        (lambda: Freeze(rank=0, at_iteration=0, seconds=0), "Freeze.seconds = 0"),
        (lambda: Link(bandwidth="0 MB/s"), "down=True"),
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


def test_replace_checks_anew() -> None:
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


# Code of the user's own


@pytest.fixture
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "my_task.py"
    file.write_text(f"raise RuntimeError('validation must not run this')\n{OWN_TASK}")
    return file


def test_a_path_is_checked_without_running_it(own_file: Path) -> None:
    exp = Experiment(task="my_task.py:MyTask", task_options={"width": 4, "depth": 2})
    assert exp.task == "my_task.py:MyTask" and exp.carries_code == ("task",)
    with pytest.raises(SpecError, match=r"no MyTusk \(did you mean 'MyTask'"):
        Experiment(task="my_task.py:MyTusk")
    with pytest.raises(SpecError, match=r"no option 'widht' \(did you mean 'width'"):
        Experiment(task="my_task.py:MyTask", task_options={"widht": 4})
    own_file.write_text("class MyTask(:\n")
    with pytest.raises(SpecError, match=r"my_task\.py.*line 1"):
        Experiment(task="my_task.py:MyTask")


def test_code_needs_leave_to_be_read_from_yaml(own_file: Path, tmp_path: Path) -> None:
    source = Source(name="MyTask", code=OWN_TASK)
    assert Experiment().carries_code == ()
    for exp in (Experiment(task="my_task.py:MyTask"), Experiment(task=source)):
        with pytest.raises(SpecError, match=r"code in task.*allow_code=True"):
            Experiment.from_yaml(exp.to_yaml())
        assert Experiment.from_yaml(exp.to_yaml(), allow_code=True) == exp
    nested = "options: {consistency: [{name: A, code: 'class A: pass'}]}"
    with pytest.raises(SpecError, match="code in options"):
        Experiment.from_yaml(nested)


def test_a_path_may_be_beside_the_yaml_and_is_absolute_for_ranks(
    own_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exp = Experiment(task="my_task.py:MyTask")
    exp.to_yaml(tmp_path / "spec.yaml")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert Experiment.from_json(exp.to_json()).task == f"{own_file}:MyTask"
    monkeypatch.chdir(elsewhere)
    found = Experiment.from_yaml(tmp_path / "spec.yaml", allow_code=True)
    assert found.task == f"{own_file}:MyTask"


def test_options_of_an_own_strategy_are_those_of_its_config() -> None:
    code = "class Config:\n    def __init__(self, pace=1): ...\ndef train(job, config): ...\n"
    own = Source(name="train", code=code)
    assert Experiment(strategy=own, options={"pace": 2}).options == {"pace": 2}
    with pytest.raises(SpecError, match=r"no option 'place' \(did you mean 'pace'"):
        Experiment(strategy=own, options={"place": 2})
    without = Source(name="train", code="def train(job, config): ...\n")
    with pytest.raises(SpecError, match=r"takes none.*Config"):
        Experiment(strategy=without, options={"pace": 2})


@dataclass(frozen=True)
class _Config:
    shares: tuple[float, ...] = (1.0,)
    workers: int = 1

    def __post_init__(self) -> None:
        if self.workers > 9:
            raise ValueError("workers must be at most 9")


def test_configure_checks_values_and_turns_lists_into_tuples() -> None:
    assert configure(_Config, {"shares": [1, 2]}) == _Config(shares=(1.0, 2.0))
    for options, says in (
        ({"workers": "many"}, "workers = 'many'"),
        ({"workers": 10}, "at most 9"),
        ({"worker": 1}, "did you mean 'workers'"),
    ):
        with pytest.raises(SpecError, match=says):
            configure(_Config, options)
