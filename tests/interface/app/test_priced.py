"""Whatever a page or a link says costs at most 50 ms of processor time and 50 MB."""

from __future__ import annotations

import base64
import random
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.interface.app.priced import Priced
from tools.fuzz import prices
from workbench.experiment.spec import Experiment
from workbench.interface import form

MOST_MS = 100  # where others have the core too: alone the most takes half of it
SCRIPT_MS = 2_000  # a script's own experiment: no other waits for it
drawn = settings(
    max_examples=settings().max_examples // 2,  # of `python -m tools.fuzz`, a sample
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
numbers = st.integers(-1, 10**18) | st.sampled_from(
    [0, 1, 2, 3, 4, 8, 16, 17, 64, 500, 1024, 10**4, 10**6, 10**7, 2**31, 2**61 - 1, 10**18]
)


@pytest.fixture(scope="module")
def priced() -> Iterator[Priced]:
    process = Priced()
    yield process
    process.close()


def packed(text: str) -> str:
    return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")


@st.composite
def nested(draw: st.DrawFn) -> str:
    """Brackets in brackets, lists of lists, long numbers and long texts, as YAML."""
    piece = draw(
        st.sampled_from(
            [
                "[",
                "{",
                "- ",
                "? ",
                "[a, ",
                "{a: ",
                "{? ",
                "[[], ",
                "&a [",
                "*a, ",
                "!!int ",
                "'",
                "\\",
            ]
        )
    )
    times = draw(st.integers(1, 65_000 // len(piece)))
    around = draw(st.sampled_from(["{}", "a: {}", "options: {{a: {}}}", "[{}]", "{}\n", "x: 1{}"]))
    number = draw(st.sampled_from(["1", ":1", "_1", "f"]))
    return draw(
        st.sampled_from(
            [
                around.format(piece * times),
                "options: {a: 1" + number * times + "}",
                "".join(f"a{i}: 1\n" for i in range(times % 9_000)),
                "network: {links: {"
                + "".join(f"{i}->{i + 1}: {{}}, " for i in range(times % 4_000))
                + "}}",
                "network: {levels: [" + f"{times}, " * (times % 9_000) + "]}",
                "faults: [" + "{fault: slow, rank: 0, factor: 2}, " * (times % 1_500) + "]",
            ]
        )
    )


@st.composite
def fields(draw: st.DrawFn) -> dict[str, Any]:
    """Fields of an experiment, its strategy's options among them, with numbers up to 10^18."""
    known = {one.name: one for one in form.fields()}
    strategy = draw(st.sampled_from(known["strategy"].choices))
    options_of_strategy = [one.name for one in known.values() if strategy in one.strategies]
    spec: dict[str, Any] = {"strategy": strategy}
    plain = ["ranks", "iterations", "batch_size", "threads", "chunk_bytes", "warmup", "seed"]
    for name in draw(st.lists(st.sampled_from(plain), unique=True)):
        spec[name] = draw(numbers)
    options = {}
    for name in (
        draw(st.lists(st.sampled_from(options_of_strategy), unique=True))
        if options_of_strategy
        else ()
    ):
        if known[name].kind in ("int", "float"):
            options[name] = draw(numbers)
        elif known[name].choices:
            options[name] = draw(st.sampled_from(known[name].choices))
        else:
            pairs = st.lists(st.tuples(numbers, numbers), max_size=20)
            grids = st.sampled_from([[["0F0", "0B0"]], [[f"{10**17}F{10**17}"] * 9], ["1F1 " * 99]])
            options[name] = draw(pairs | grids | st.lists(numbers, max_size=20) | numbers)
    return spec | {"options": {key.removeprefix("options."): options[key] for key in options}}


def as_link(spec: dict[str, Any]) -> str:
    import yaml

    return packed(yaml.safe_dump(spec, default_flow_style=False))


def as_form(spec: dict[str, Any]) -> dict[str, Any]:
    values = form.values(Experiment()) | {key: spec[key] for key in spec if key != "options"}
    for key, value in spec["options"].items():
        values[f"options.{key}"] = value if isinstance(value, int | str) else str(value)[:4_000]
    return values


@pytest.mark.full
@drawn
@given(spec=fields())
def test_numbers_of_any_size_cost_little(priced: Priced, spec: dict[str, Any]) -> None:
    for case in ({"link": as_link(spec)}, {"values": as_form(spec)}):
        ms, reply = priced.price(case)
        assert ms <= MOST_MS, (ms, reply[:300])
    ms, reply = priced.price({"fields": spec})
    assert ms <= SCRIPT_MS, (ms, reply[:300])


@drawn
@given(text=nested())
def test_texts_of_any_shape_cost_little(priced: Priced, text: str) -> None:
    cases: list[dict[str, Any]] = [{"link": packed(text)}]
    for name in ("options", "options.split", "network.links"):
        values = form.values(Experiment()) | {"strategy": "pipeline", name: text[:4_000]}
        cases.append({"values": values})
    for case in cases:
        ms, reply = priced.price(case)
        assert ms <= MOST_MS, (ms, reply[:300])
        assert "link" not in case or reply or len(text) < 100, "this was never an experiment"


@pytest.mark.parametrize(
    "changes",
    [
        {"strategy": "pipeline", "options.microbatches": 10**6},
        {"strategy": "pipeline", "options.microbatches": 50_000},
        {"strategy": "pipeline", "options.stages_per_rank": 10**6, "options.schedule": "zbv"},
        {"strategy": "pipeline", "options.schedule": "pipedream", "iterations": 10**18},
        {"strategy": "pipeline", "ranks": 10**6},
        {"strategy": "gossip", "ranks": 10**5, "options.graph": "complete"},
        {"strategy": "ad_psgd", "ranks": 10**7},
        {"ranks": 2**61 - 1, "network.levels": "2 x 2"},
        {"threads": 3000, "ranks": 2},
        {"all_reduce": "one_shot", "ranks": 16, "chunk_bytes": 64 * 2**20},
        {"network.links": "\n".join(f"{i}->{i + 1}: 5 ms" for i in range(250))},
    ],
)
def test_what_is_too_much_is_refused_at_once(priced: Priced, changes: dict[str, Any]) -> None:
    ms, reply = priced.price({"values": form.values(Experiment()) | changes})
    assert reply.startswith("Refused: "), reply
    assert ms <= MOST_MS, ms


def test_a_link_of_123_characters_costs_nothing(priced: Priced) -> None:
    link = packed("a: " + "[" * 65_000)
    assert len(link) < 130
    ms, reply = priced.price({"link": link})
    assert "this link carries no experiment: this YAML is nested too deeply" in reply
    assert ms <= MOST_MS


@pytest.mark.parametrize("make", [prices.link, prices.values])
def test_what_the_fuzzer_makes_up_costs_little(
    priced: Priced, make: Callable[[random.Random], dict[str, Any]]
) -> None:
    for seed in range(100):
        ms, reply = priced.price(make(random.Random(seed)))
        assert ms <= MOST_MS, (seed, ms, reply[:300])
