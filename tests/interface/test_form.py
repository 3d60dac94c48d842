"""A form for an Experiment: its fields, there and back, as code, as a link; refused in words."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from tests.experiment.experiments import experiments
from tests.interface.plain import many, plain
from tests.pairwise import first
from workbench.common.errors import SpecError
from workbench.experiment.spec import Experiment, Network
from workbench.interface import fault_lines, form, lines
from workbench.interface.fault_lines import FAULT_PHRASES
from workbench.interface.form import FormError
from workbench.interface.form_fields import LINES
from workbench.interface.form_labels import PLACES
from workbench.presets.catalogue import comparisons
from workbench.user_code import source
from workbench.user_code.source import Source

ROOT = Path(__file__).parents[2]
SERVED = {"strategy": "parameter_server"}


def terse(exp: Experiment) -> Experiment:
    """The same, without options that are as by default."""
    fields = {one.name: one.default for one in form.option_fields()}
    kept = {key: one for key, one in exp.options.items() if fields.get(f"options.{key}") != one}
    return exp.replace(options=kept)


# ---- fields


def test_every_field_of_an_experiment_is_asked_for_once() -> None:
    expected = [name for name in Experiment.model_fields if name != "network"]
    expected += [f"network.{name}" for name in Network.model_fields]
    names = [field.name for field in form.fields() if not field.strategies]
    assert sorted(names) == sorted(expected)
    for field in form.fields():
        assert field.label and field.help and field.group, field
        assert field.kind in ("int", "float", "text", "choice", "bool")
        assert not field.choices or field.default in field.choices


def test_a_field_without_a_place_appears_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(PLACES, "batch_size")
    last = form.fields()[-1]
    assert (last.name, last.label, last.group) == ("batch_size", "Batch size", "More")
    assert last.advanced and last.minimum == 1 and last.kind == "int"


def test_what_can_be_picked_can_be_run() -> None:
    for field in form.fields():
        for value in field.suggestions:
            # The first of some play a game; what all have no strategy decides.
            strategy = field.strategies[-1] if field.strategies else "data_parallel"
            hosts = "2 x 2" if field.name == "network.between" else ""
            values = {"strategy": strategy, "ranks": 4, "network.levels": hosts, field.name: value}
            assert form.experiment(values)
        for line in field.phrases:
            assert LINES[field.name][1](line), line
    paths = {one.name for one in form.fields() if one.takes_path}
    assert {"strategy", "task", "all_reduce", "options.schedule", "options.consistency"} <= paths
    kinds = {fault.fault for fault in lines.parse_faults("\n".join(FAULT_PHRASES))}
    assert kinds == {record.model_fields["fault"].default for record in fault_lines._FAULTS}


def test_choices_are_the_files_of_the_folders_and_say_what_they_are() -> None:
    by_name = {field.name: field for field in form.fields()}
    assert by_name["strategy"].choices == tuple(source.available("strategies"))
    assert by_name["task"].choices == tuple(source.available("tasks"))
    algorithms = source.available("collectives", "all_reduce_")
    assert by_name["all_reduce"].choices == (*algorithms, "auto")
    assert by_name["all_reduce"].docs["ring"].startswith("Ring all-reduce: reduce-scatter, then")
    assert by_name["optimizer"].choices == ("sgd", "adam", "adamw", "adagrad")
    assert by_name["strategy"].labels["data_parallel"] == "Data parallel"
    assert by_name["strategy"].labels["local_sgd"] == "Local SGD"
    assert by_name["task"].labels["lenet_digits"] == "LeNet-5 on handwritten digits"
    assert by_name["all_reduce"].labels["all_to_all"] == "all-to-all"


def test_what_a_newcomer_needs_is_not_folded_away() -> None:
    plain = [one.name for one in form.fields() if not one.advanced and not one.strategies]
    assert {"strategy", "ranks", "iterations", "all_reduce", "network.links", "faults"} <= {*plain}
    assert len(plain) <= 12


def test_it_needs_no_user_interface() -> None:
    heavy = ("IPython", "ipywidgets", "anywidget", "panel", "bokeh", "plotly", "torch")
    code = (
        "import sys\nfrom workbench.interface import form\nform.fields(), form.presets()\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


# ---- values, there and back


@many
@given(experiments())
def test_values_make_an_equal_experiment(exp: Experiment) -> None:
    assert form.experiment(form.values(exp)) == terse(exp)


@many
@given(plain)
def test_what_is_typed_makes_an_equal_experiment(exp: Experiment) -> None:
    typed = {
        name: "" if value is None else value if isinstance(value, bool) else f" {value} "
        for name, value in form.values(exp).items()
    }
    assert form.experiment(typed) == terse(exp)


def test_what_is_left_out_is_as_by_default() -> None:
    assert form.experiment({}) == Experiment()
    assert form.experiment({"ranks": "", "lr": "", "iterations": None}) == Experiment()


def test_code_of_the_users_own_is_kept() -> None:
    users_source = Source(name="mine", code="def mine(comm, x):\n    return x\n")
    exp = Experiment(all_reduce=users_source)
    values = form.values(exp)
    assert values["all_reduce"] is exp.all_reduce
    assert form.experiment(values | {"ranks": 2}).all_reduce == users_source


def test_links_and_faults_as_people_type_them() -> None:
    links = lines.parse_links("0->1: 5 ms, 100 Mbit/s\n1 → 2 down; 2->3: 20us,down")
    assert links == {
        (0, 1): wb.Link(latency="5 ms", bandwidth="100 Mbit/s"),
        (1, 2): wb.Link(down=True),
        (2, 3): wb.Link(latency="20us", down=True),
    }
    faults = lines.parse_faults(
        "kill 2 after 10 iterations; freeze rank 1 in iteration 4 for 1.5 s\n"
        "slow rank 0 ×4\njitter .1 x 6\n"
        "corrupt rank 3 after 5 iterations; corrupt 3 in iteration 7: shape\n"
        "preempt 1 when rank 2 is in step 3 of all_reduce after 1 iteration; kill 1 after 2 s"
    )
    assert faults == (
        wb.Kill(rank=2, at_iteration=10),
        wb.Freeze(rank=1, at_iteration=3, seconds=1.5),
        wb.Slow(rank=0, factor=4),
        wb.Jitter(probability=0.1, factor=6),
        wb.Corrupt(rank=3, at_iteration=5),
        wb.Corrupt(rank=3, at_iteration=6, kind="shape"),
        wb.Preempt(rank=1, when=wb.When(rank=2, step=2, from_iteration=1)),
        wb.Kill(rank=1, after="2 s"),
    )
    assert lines.parse_faults(lines.print_faults(faults)) == faults
    with pytest.raises(wb.SpecError, match="kill rank 2 after 10 iterations"):
        lines.parse_faults("kill 2 at 10")  # of the API, which counts from 0?


# ---- options of a strategy


def test_each_option_of_each_strategy_has_a_field_with_its_own_words() -> None:
    """Read from the Config that the strategy has: names, defaults, choices, what each means."""
    by_name = {field.name: field for field in form.fields() if field.strategies}
    defaults = dict[str, dict[str, Any]]()  # by option, of each strategy that has it
    for strategy in source.available("strategies"):
        config = source.load("strategies", strategy, "Config")
        for one in dataclasses.fields(config):
            field = by_name[f"options.{one.name}"]
            assert strategy in field.strategies and field.help and field.label
            defaults.setdefault(field.name, {})[strategy] = one.default
    for name, of_strategies in defaults.items():
        known = [*of_strategies.values()]
        same = all(one == known[0] for one in known)
        assert by_name[name].default == (known[0] if same else None), name
    assert by_name["options.consistency"].choices == tuple(source.available("consistency"))
    assert by_name["options.consistency"].docs["asp"].startswith("Asynchronous parallel")
    assert not [one for field in by_name.values() for one in field.docs.values() if "`" in one]
    assert by_name["options.dssp_mode"].choices == ("strict", "paper")
    assert by_name["options.servers"].kind == "int" and not by_name["options.servers"].advanced


def test_options_count_while_their_strategy_is_chosen() -> None:
    typed = {
        "ranks": "5",
        "options.servers": "2",
        "options.placement": "0.75, 0.25",
        "options.consistency": " ssp ",
        "options.bucket_cap_mb": "3",
    }
    assert form.experiment(typed) == Experiment(ranks=5)
    assert form.experiment({**typed, "strategy": "ddp"}).options == {"bucket_cap_mb": 3.0}
    experiment = form.experiment({**typed, **SERVED})
    assert experiment.options == {"servers": 2, "placement": [0.75, 0.25], "consistency": "ssp"}
    assert form.experiment(form.values(experiment)) == experiment


@pytest.mark.parametrize(
    "options",
    [
        {"staleness": 5, "consistency": "dssp", "dssp_mode": "paper"},
        {"placement": "hash", "servers": 3},
        {"placement": (0.6, 0.4), "servers": 2},
        {"consistency": "asp", "stale_gradients": "drop", "drop_above": 4},
        {"models": 2},
    ],
)
def test_options_there_and_back(options: dict[str, Any]) -> None:
    exp = Experiment(strategy="parameter_server", ranks=8, options=options)
    assert form.experiment(form.values(exp)) == exp
    texts = {name: str(one) for name, one in form.values(exp).items() if "options" in name if one}
    assert form.experiment({**texts, **SERVED, "ranks": 8}) == exp


def test_a_default_that_was_said_is_left_out() -> None:
    """So that nothing of one strategy stands in the way of another that is chosen then."""
    experiment = Experiment(strategy="parameter_server", options={"staleness": 3, "servers": 2})
    values = form.values(experiment)
    assert values["options"] == ""
    assert form.experiment(values).options == {"servers": 2}
    assert form.experiment({**values, "strategy": "ddp"}).options == {}


def test_a_policy_of_the_users_own_stays_what_it_is() -> None:
    users_source = Source(
        name="Mine", code="class Mine:\n    def may_start(self, *_):\n        return True\n"
    )
    exp = Experiment(
        strategy="parameter_server", options={"consistency": users_source, "servers": 2}
    )
    values = form.values(exp)
    assert values["options.consistency"] == users_source and values["options.servers"] == 2
    assert form.experiment({**values, "options.servers": 1}).options == {
        "consistency": users_source
    }


PIPED: dict[str, Any] = {"strategy": "pipeline", "ranks": 2}


@pytest.mark.parametrize(
    "options",
    [
        {"schedule": "gpipe", "microbatches": 4},
        {"split": ["fc1", "fc2"], "replicas": 1},
        {"split": "layers"},
        {"schedule": [["0F0", "0B0"], ["1F0", "1B0"]], "microbatches": 1},
        {"schedule": "0F0 0B0\n1F0 1B0", "microbatches": 1},
    ],
)
def test_a_pipeline_there_and_back(options: dict[str, Any]) -> None:
    exp = terse(Experiment(**PIPED, options=options))
    values = form.values(exp)
    assert form.experiment(values) == exp
    assert values["options.schedule"] in source.available("schedules"), "a grid is not a choice"
    assert form.from_link(form.to_link(exp)) == exp


def test_pads_as_people_type_them() -> None:
    experiment = form.experiment({**PIPED, "pad_compute": " 10 ms,20 ms, 5 us "})
    assert experiment.pad_compute == wb.Pads(
        forward="10 ms", input_gradient="20 ms", weight_gradient="5 us"
    )
    values = form.values(experiment)
    assert values["pad_compute"] == "10 ms, 20 ms, 5 us" and form.experiment(values) == experiment
    assert form.experiment({**PIPED, "pad_compute": "20 ms"}).pad_compute == "20 ms"
    assert form.experiment({**PIPED, "pad_compute": " "}).pad_compute is None
    assert eval(form.as_code(experiment), {"wb": wb}) == experiment  # what the form shows to copy


def test_fields_of_a_pipeline_are_there_while_it_is_chosen() -> None:
    by_name = {field.name: field for field in form.fields() if "pipeline" in field.strategies}
    assert by_name["options.schedule"].choices == tuple(source.available("schedules"))
    assert by_name["options.schedule"].docs["gpipe"].startswith("GPipe")
    rare = {name for name, field in by_name.items() if field.advanced}
    # One is for a recovery policy, the other for split="auto".
    assert rare == {"options.buddy_every", "options.memory_weight"}
    assert form.experiment({"options.schedule": "gpipe"}) == Experiment()


# ---- refused, in words, where it is wrong


@pytest.mark.parametrize(
    ("values", "field", "words"),
    [
        ({"ranks": "0"}, "ranks", "greater than or equal to 1"),
        ({"ranks": "four"}, "ranks", "must be a whole number"),
        ({"ranks": 2.5}, "ranks", "must be a whole number"),
        ({"strategy": "sequential"}, "ranks", "is one process"),
        ({"strategy": "ddq"}, "strategy", "did you mean 'ddp'?"),
        ({"lr": "fast"}, "lr", "must be a number"),
        ({"momentum": 0.9, "optimizer": "adam"}, "momentum", "belongs to optimizer='sgd'"),
        ({"network.latency": "5"}, "network.latency", "has no unit"),
        ({"network.bandwidth": "0 bit/s"}, "network.bandwidth", "lets nothing through"),
        ({"network.links": "0-1: 5 ms"}, "network.links", "is not a link. Write one per line"),
        ({"network.links": "0->1: 5"}, "network.links", "'0->1: 5': duration '5' has no unit"),
        ({"network.links": "0->1: quick"}, "network.links", "neither a latency nor a bandwidth"),
        ({"network.links": "0->1: 5 ms, 6 ms"}, "network.links", "said twice"),
        ({"network.links": "0->1: 5 ms\n0->1: down"}, "network.links", "a line before"),
        ({"network.links": "0->9: 5 ms"}, "network.links", "0->9: there is no rank 9"),
        ({"network.links": "2->2: 5 ms"}, "network.links", "from one rank to another"),
        ({"faults": "kill all"}, "faults", "is not a fault. Write one per line"),
        ({"faults": "slow rank 1 x0.5"}, "faults", "'slow rank 1 x0.5': must be greater"),
        ({"faults": "slow 1 x2; kill 7 in iteration 1"}, "faults", "line 2: there is no rank 7"),
        ({"options": "bucket: 3"}, "options", "has no option 'bucket'"),
        ({"options": "- 3"}, "options", "write one per line, as name: value"),
        ({**SERVED, "options.servers": 0}, "options.servers", "must be 1 or more"),
        ({**SERVED, "options.consistency": "bps"}, "options.consistency", "did you mean 'bsp'"),
        ({**SERVED, "options.placement": "1, 2"}, "options.placement", "gives 2 shares for"),
        ({**SERVED, "options.staleness": "many"}, "options.staleness", "must be a"),
        ({**SERVED, "options.servers": 4}, "ranks", "options.servers = 4 leaves 0 workers"),
        ({**SERVED, "options": "stal: 3"}, "options", "did you mean 'staleness'"),
        ({"strategy": "ddp", "options.bucket_cap_mb": "x"}, "options.bucket_cap_mb", "must be a"),
        ({"pad_compute": "1 ms, 2 ms"}, "pad_compute", "is not a padding"),
        ({**PIPED, "pad_compute": "1 ms, 2, 3 ms"}, "pad_compute", "'2' has no unit"),
        ({"pad_compute": "1 ms, 2 ms, 3 ms"}, "pad_compute", "strategy='pipeline'"),
        ({**PIPED, "options.schedule": "1f1"}, "options.schedule", "did you mean '1f1b'"),
        ({**PIPED, "options.microbatches": "0"}, "options.microbatches", "must be 1 or more"),
        ({"threads": "0"}, "threads", "greater than or equal to 1"),
        ({"timeout": "soon"}, "timeout", "is not a duration"),
        ({"device": "gpu"}, "device", "must be auto"),
        ({"rank": 4}, "", "has no field 'rank'"),
    ],
)
def test_what_cannot_be_is_said_beside_its_field(
    values: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(FormError) as raised:
        form.experiment(values)
    assert list(raised.value.fields) == [field]
    assert words.lower() in raised.value.fields[field].lower()
    assert isinstance(raised.value, SpecError) and words.lower() in str(raised.value).lower()


def test_everything_that_is_wrong_is_said_at_once() -> None:
    values = {"ranks": 0, "lr": "-1", "network.latency": "x", "faults": "?", "strategy": "none"}
    with pytest.raises(FormError) as raised:
        form.experiment(values)
    assert set(raised.value.fields) == set(values)


# ---- presets


@pytest.mark.parametrize("name", first(30, form.presets()))
def test_a_preset_says_what_to_look_for_and_can_be_run_as_it_is(name: str) -> None:
    preset = form.presets()[name]
    assert preset.name == name
    assert preset.words.endswith((".", "?")) and len(preset.words) <= 100
    assert form.experiment(form.values(preset.experiment)) == preset.experiment
    assert form.from_link(form.to_link(preset.experiment)) == preset.experiment


def test_presets_differ() -> None:
    specs = [preset.experiment for preset in form.presets().values()]
    assert all(one != other for at, one in enumerate(specs) for other in specs[:at])
    assert specs[0].ranks == 4
    assert max(exp.ranks for exp in specs) == 16


@given(st.text(max_size=60))
@many
def test_any_text_is_read_or_refused(text: str) -> None:
    """Whatever is typed, the answer is an Experiment or words, never another exception."""
    for name in ("network.links", "faults", "options", "ranks", "lr", "timeout", "record"):
        try:
            form.experiment({name: text})
        except FormError as error:
            assert all(error.fields.values())


@pytest.mark.parametrize("name", comparisons())
def test_a_comparison_has_experiments_that_can_be_run(name: str) -> None:
    one = comparisons()[name]
    specs = one.make()
    assert one.name == name and one.words.endswith((".", "?")) and len(one.words) <= 100
    assert len(specs) >= 3 and len({exp.to_json() for exp in specs.values()}) == len(specs)


def test_an_option_whose_default_differs_by_strategy_is_left_out_where_it_is_empty() -> None:
    """Gorila's DQN looks one reward ahead with a single Q-network, Ape-X's three with double Q."""
    fields = {one.name: one for one in form.option_fields()}
    assert fields["options.n_step"].default is None and fields["options.n_step"].optional
    assert "left out: 3 (ape_x, sequential); 1 (gorila)" in fields["options.n_step"].help
    for strategy, n_step, double in (("ape_x", 3, True), ("gorila", 1, False)):
        plain = wb.Experiment(strategy=strategy, ranks=5, task="catch")
        assert form.experiment(form.values(plain)) == plain
        config = source.load("strategies", strategy, "Config")(**plain.options)
        assert (config.n_step, config.double) == (n_step, double)
        typed = form.values(plain) | {"options.n_step": "2", "options.double": "true"}
        assert form.experiment(typed).options == {"n_step": 2, "double": True}
        assert form.experiment(form.values(form.experiment(typed))) == form.experiment(typed)
