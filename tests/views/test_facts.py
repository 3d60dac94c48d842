"""What is said beside the picture: spec, links, state, and what rows add up to."""

from __future__ import annotations

import json
import math
import re
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import workbench as wb
from tests.synthetic import loss_row, table, training
from workbench.common.errors import WorkbenchError
from workbench.runs.loaded import Loaded
from workbench.shared_memory.control_state import ControlState
from workbench.shared_memory.link_state import LinkState
from workbench.store.event_store import NOW_SCHEMA, Store
from workbench.store.table import from_frame
from workbench.theory import cost_model as formulas
from workbench.theory.algorithms import find
from workbench.views.packing import passages
from workbench.views.pages.facts import (
    control,
    facts,
    in_a_line,
    lanes_now,
    slow_ranks,
    state_of,
    theory,
)
from workbench.views.pages.link_facts import changed, emulated, link_notes
from workbench.views.pages.tally import Tally
from workbench.views.stills.still import select
from workbench.views.stills.svg import svg

FREE = ControlState(held=False, standing=(), slow_motion=1.0, slow={}, frozen=(), links={})
MBIT = 8_000_000  # picoseconds a byte at 1 Mbit/s


def facts_of(**fields: Any) -> dict[str, Any]:
    return facts({"experiment": wb.Experiment(**fields).to_yaml(), "cores": "2", "threads": "1"})


# ---- the spec


def test_a_run_is_described_by_its_spec() -> None:
    run = facts_of(ranks=4, iterations=9, strategy="ddp", all_reduce="naive")
    named = ("title", "strategy", "ranks", "iterations", "algorithm", "cores", "threads")
    assert [run[name] for name in named] == ["DDP", "ddp", 4, 9, "naive", 2, 1]
    assert facts_of()["title"] == "Data parallel" and facts_of()["algorithm"] == "ring"
    titles = {
        "fsdp": "FSDP",
        "local_sgd": "Local SGD",
        "diloco": "DiLoCo",
        "top_k": "Top-k",
        "ad_psgd": "AD-PSGD",
        "malt": "MALT",
        "parameter_server": "Parameter server",
        "missing": "Missing",  # of a saved run: its file is not there
    }
    stored = {name: facts({"experiment": f"strategy: {name}"}) for name in titles}
    assert {name: run["title"] for name, run in stored.items()} == titles
    assert (run["emulated"], run["notes"]) == ([], [])
    nothing = facts({})
    assert (nothing["ranks"], nothing["iterations"], nothing["title"]) == (0, -1, "")


def link_told(source: int, target: int, state: str) -> dict[str, Any]:
    words = f"link {source} → {target} {state}"
    return {"from": source, "to": target, "made": state, "down": state == "cut", "words": words}


def test_what_is_our_own_making_is_said() -> None:
    link = wb.Link(latency="5 ms", bandwidth="1 Mbit/s")
    network = wb.Network(latency="1 ms", links={(0, 1): link, (1, 0): wb.Link(down=True)})
    faults = (wb.Slow(rank=1, factor=4), wb.Jitter(probability=0.1, factor=6))
    run = facts_of(network=network, pad_compute="20 ms", faults=faults)
    assert run["emulated"] == [
        link_told(0, 1, "emulated: 5 ms, 1 Mbit/s"),
        link_told(1, 0, "cut"),
    ]
    assert run["link_levels"] == [{"made": "emulated: 1 ms", "down": False}]
    assert run["notes"] == [
        "all links emulated: 1 ms",
        "compute padded to 20 ms",
        "10% of iterations slowed ×6, at random",
    ]
    pads = "{forward: 10 ms, input_gradient: 20 ms, weight_gradient: 5 ms}"
    piped = facts({"experiment": f"strategy: pipeline\nranks: 2\npad_compute: {pads}"})
    assert piped["notes"] == ["compute padded to F 10 ms, I 20 ms, W 5 ms"]
    assert slow_ranks({"experiment": wb.Experiment(faults=faults).to_yaml()}) == {1: 4.0}
    clocks = {str(rank): {"bound_ns": 1000 * rank} for rank in (86, 3)}
    hosts = facts({"experiment": wb.Experiment().to_yaml(), "clocks": json.dumps(clocks)})
    assert hosts["clock_bounds"] == {"86": 86_000, "3": 3_000}
    assert hosts["notes"] == ["times of ranks 3, 86: ± 86 µs"]
    with pytest.raises(wb.WorkbenchError):
        facts({"experiment": wb.Experiment().to_yaml(), "clocks": '{"1": {}}'})


def ring(comm: Any, x: Any) -> Any:
    """A user's own algorithm that has the name of one of ours."""
    return x


def test_theory_speaks_of_known_algorithms_only() -> None:
    for name in ("reduce_scatter/ring", "all_gather/ring"):
        assert theory(4)[name].items() >= {"steps": 3, "share": 0.75}.items()
    for name, prediction in theory(4).items():
        if not name.startswith("all_reduce/"):
            continue
        algorithm = name.removeprefix("all_reduce/")
        assert prediction["steps"] == formulas.steps(algorithm, 4)
        nbytes = 4 * 1024
        busiest = max(formulas.bytes_sent(algorithm, 4, nbytes))
        assert prediction["share"] * nbytes == pytest.approx(busiest)
    assert {"all_reduce/ring", "all_reduce/naive", "all_reduce/one_shot"} <= set(theory(4))
    assert theory(4)["all_reduce/ring"].items() >= {"steps": 6, "share": 1.5}.items()
    assert theory(1) == theory(0) == {}
    header = facts_of(all_reduce=ring)
    assert (header["theory"], header["algorithm"]) == ({}, "ring")


def test_theory_of_many_ranks_takes_time_in_proportion() -> None:
    def seconds(ranks: int) -> float:
        theory.__globals__["_theory"].cache_clear()
        began = time.thread_time()
        assert theory(ranks)["all_reduce/ring"]["steps"] == 2 * (ranks - 1)
        return time.thread_time() - began

    seconds(512)
    assert seconds(8_192) < 5 * 16 * seconds(512)  # 16 times as many; a square would be 256
    assert theory(10**9) == {}, "of so many nothing is worked out"


@pytest.mark.parametrize(
    "metadata",
    [
        {"ranks": "1000000000"},
        {"ranks": "-3"},
        {"experiment": "strategy: data_parallel\nranks: 1000000000\n"},
        {"experiment": "strategy: pipeline\nranks: 4\n", "pipeline": '{"ranks": 4}'},
        {"experiment": "strategy: pipeline\nranks: 4\n", "pipeline": "[1]"},
        {"ranks": "2", "deadlock": "0,7"},
        {"ranks": "2", "deadlock": "x"},
    ],
)
def test_metadata_that_no_run_stores_is_one_sentence(
    tmp_path: Path, metadata: dict[str, str]
) -> None:
    run = Loaded(Store.from_frame(training(2), metadata))
    bundle = run._repr_mimebundle_()
    assert [*bundle] == ["text/plain"]
    assert "the metadata of this run cannot be read" in bundle["text/plain"]
    if "deadlock" not in metadata:
        with pytest.raises(WorkbenchError, match="the metadata of this run cannot be read"):
            run.to_html(tmp_path / "run.html")


@pytest.mark.parametrize("n", [3, 4, 16])
def test_each_rank_sends_what_theory_says_of_its_chunks(n: int) -> None:
    """Also where the tensor is not cut evenly, and ranks send unequal amounts."""
    uneven, judged = 2 * n + 3, 0
    for name, prediction in theory(n).items():
        operation, _, algorithm = name.partition("/")
        if not (sends := prediction.get("sends")):
            continue
        law = find(algorithm, operation, "", n)
        sizes = law.cut(n, uneven)
        assert [
            sum(int(k) * size for k, size in zip(counts, sizes, strict=True)) for counts in sends
        ] == law.sent(n, uneven), name
        shares = prediction.get("shares", [prediction["share"]] * n)
        whole = [round(sent / (n << 20), 6) for sent in law.sent(n, n << 20)]
        assert whole == shares, name
        judged += len(set(law.sent(n, uneven))) > 1
    assert judged > 3
    assert len(json.dumps(theory(n))) < 8000  # they go with every batch of rows


# ---- what is done to the ranks


def test_control_as_a_page_hears_of_it() -> None:
    slow_link = LinkState(2_000_000, 30 * MBIT // 900, False)
    state = ControlState(
        held=True,
        standing=(0, 2),
        slow_motion=20.0,
        slow={1: 4.0},
        frozen=(3,),
        links={(0, 1): slow_link, (1, 0): LinkState(0, 0, True)},
        ended={2: "killed by SIGKILL"},
        how={2: "killed"},
        loads=(0, 1),
        corrupts=(1,),
    )
    message = control(state, {0: 11, 1: 12})
    assert (
        message["held"] is True and message["standing"] == [0, 2] and message["slow_motion"] == 20
    )
    assert (message["slow"], message["frozen"]) == ({1: 4.0}, [3])
    assert (message["ended"], message["how"]) == ({2: "killed by SIGKILL"}, {2: "killed"})
    assert message["pids"] == {0: 11, 1: 12}
    assert (message["loads"], message["corrupts"]) == ([0, 1], [1])
    one, other = message["links"]
    assert one == {
        "from": 0,
        "to": 1,
        "latency_ms": 2.0,
        "bandwidth": "30 Mbit/s",
        "down": False,
        "words": "2 ms, 30 Mbit/s",
    }
    assert other["words"] == "cut" and other["bandwidth"] == "unlimited" and other["down"]
    assert control(None, {})["links"] == [] and set(control(None, {})) == set(message)


def test_links_that_are_all_alike_are_one_note() -> None:
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    alike = LinkState(1_000_000, 0, False)
    links = dict.fromkeys(pairs, alike) | {(2, 3): LinkState(0, 0, True)}
    state = ControlState(False, (), 1.0, {}, (), links)
    notes, levels = emulated(state, 4)
    assert notes == [link_told(2, 3, "cut")]
    assert levels == [{"made": "emulated: 1 ms", "down": False}]
    assert link_notes(levels) == ["all links emulated: 1 ms"]
    few = ControlState(False, (), 1.0, {}, (), dict.fromkeys(pairs[:3], alike))
    assert len(emulated(few, 4)[0]) == 3 and link_notes(emulated(few, 4)[1]) == []
    assert emulated(FREE, 4)[0] == [] and link_notes(emulated(FREE, 4)[1]) == []


def test_links_changed_by_hand_take_the_place_of_those_of_the_spec() -> None:
    known = facts_of(network=wb.Network(links={(0, 1): wb.Link(latency="5 ms")}))["emulated"]
    slow, cut = LinkState(1_000_000_000, MBIT, False), LinkState(0, 0, True)
    now = changed(known, {(0, 1): slow, (2, 3): cut})
    words = ["link 0 → 1 emulated: 1 s, 1 Mbit/s", "link 2 → 3 cut"]
    assert [link["words"] for link in now] == words
    plain = LinkState(0, 0, False)
    assert changed(known, {(0, 1): plain}) == [] and changed(known, {}) == known


def test_what_lanes_are_in_is_json_of_the_store_s_tuples() -> None:
    row = (
        1,
        "comm",
        "wait",
        0,
        "default",
        "all_reduce",
        "ring",
        7,
        2,
        3,
        1500,
        "float32",
        "(4,)",
        [1.5, math.nan, math.inf],
    )
    assert len(row) == len(NOW_SCHEMA)
    (lane,) = lanes_now([row], 1000)
    assert lane == {
        "rank": 1,
        "lane": "comm",
        "kind": "wait",
        "peer": 0,
        "group": "default",
        "collective": "all_reduce",
        "algorithm": "ring",
        "op": 7,
        "step": 2,
        "chunk": 3,
        "since": 500,
        "dtype": "float32",
        "shape": "(4,)",
        "values": [1.5, None, None],
    }


# ---- state


class Live:
    """A live run at some moment."""

    def __init__(self, state: ControlState | None, record: bool = True) -> None:
        self.store = Store()
        self.control_state, self.result = state, wb.Result()
        self.experiment = wb.Experiment(record=record)


def arrived(*ranks: int, record: bool = True) -> Live:
    return Live(ControlState(False, (), 1.0, {}, (), {}, arrived=ranks), record)


RUN = {"ranks": 4, "iterations": 200}


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (arrived(), "Starting 4 processes: none have arrived."),
        (arrived(2), "Starting 4 processes: 1 has arrived."),
        (arrived(0, 1, 3), "Starting 4 processes: 3 have arrived."),
        (arrived(0, 1, 2, 3), "All have arrived and are about to begin."),
    ],
)
def test_starting_says_which_have_arrived(run: Live, words: str) -> None:
    assert state_of(run, False, RUN, 0, -1) == ("starting", words)
    assert state_of(run, False, RUN, 1, 0) == ("running", "")


def test_a_run_that_is_not_recorded_says_so() -> None:
    state, words = state_of(arrived(0, 1, 2, 3, record=False), False, RUN, 0, -1)
    assert state == "running" and "record=False" in words


def test_the_end_has_its_words() -> None:
    run = arrived()
    run.result = wb.Result(ok=True, losses=[1.0] * 200)
    assert state_of(run, True, RUN, 9, 199) == ("finished", "All 200 iterations are done.")
    run.result = wb.Result(ok=True, losses=[1.0] * 57)
    assert state_of(run, True, RUN, 9, 56) == ("finished", "Stopped after 57 of 200 iterations.")
    run.result = wb.Result(error=wb.WorkbenchError("rank 2 was killed.\nmore"))
    assert state_of(run, True, RUN, 9, 56) == ("failed", "rank 2 was killed.")


def test_an_error_in_a_line() -> None:
    assert in_a_line("rank 2 was killed.\nmore") == "rank 2 was killed."
    trace = "rank 1 raised:\nTraceback ...\n  ValueError: no"
    assert in_a_line(trace) == "rank 1 raised: ValueError: no"


# ---- what rows add up to


def tallied(*pieces: pl.DataFrame, live: bool) -> Tally:
    """The tally of rows that came one piece after the other, or were there before."""
    store = Store()
    tally, tap = Tally(store, {3: 2.0}), store.tap()
    for piece in pieces:
        for batch in from_frame(piece, store.number):
            store.append(batch.rank, batch.lane, batch.rows, batch.contexts)
        if live:
            tally.absorb(passages(tap.take()), tap.position)
    if not live:
        tally.catch_up(len(store))
    return tally


FAULT = loss_row(0, 5, 0.0) | {"kind": "fault", "rank": -1, "lane": "driver", "iteration": -1}
NAN = float("nan")


@pytest.mark.parametrize("live", [True, False])
def test_counters_are_what_the_rows_say(live: bool) -> None:
    losses = [loss_row(4, 10**13, 1.0), loss_row(4, 10**13, 2.0) | {"rank": 1}]
    late = [loss_row(5, 2 * 10**13, 4.0)]
    tally = tallied(training(3), table(losses), table(late), live=live)
    counters = tally.counters(over=True)
    assert counters["events"] == training(3).height + 3 and counters["iteration"] == 5
    assert counters["loss"] == 4.0 and counters["accuracy"] is None
    assert counters["per_second"] == pytest.approx(counters["events"] / 19_000, rel=0.01)
    assert tally.origin == training(3)["start_ns"].min() and tally.ranks == 4
    assert tallied(training(3), table(losses), live=live).newest("loss") == 1.5
    assert tallied(table([loss_row(0, 5, NAN)]), live=live).newest("loss") is None


@pytest.mark.parametrize("live", [True, False])
def test_accuracy_is_that_of_the_newest_minibatch_and_of_validation_in_the_end(live: bool) -> None:
    part = loss_row(10, 10**13, 0.5) | {"name": "accuracy", "phase": "minibatch"}
    whole = loss_row(-1, 10**13, 0.9) | {"name": "accuracy", "phase": "validation"}
    assert tallied(table([part, part | {"rank": 1, "value": 0.7}]), live=live).newest(
        "accuracy"
    ) == pytest.approx(0.6)
    assert tallied(table([part | {"rank": 1}, whole]), live=live).newest("accuracy") == 0.9


@pytest.mark.parametrize("live", [True, False])
def test_what_was_done_on_purpose_is_noted_until_it_is_undone(live: bool) -> None:
    done = [
        {"name": "link", "group": "2->3", "peer": 3, "value": 0.005, "nbytes": 125_000},
        {"name": "kill", "peer": 2, "value": NAN},
        {"name": "freeze", "peer": 1, "value": NAN},
        {"name": "slow", "peer": 0, "value": 4.0},
        {"name": "remove", "peer": 1, "value": NAN},
        {"name": "preempt", "peer": 0, "value": NAN},
        {"name": "preempted", "rank": 0, "peer": -1, "value": NAN},
        {"name": "add", "peer": 1, "value": NAN},
    ]
    planned_fault = {"name": "freeze", "rank": 2, "peer": -1, "value": 1.0}  # wb.Freeze
    first = table([FAULT | each for each in (*done, planned_fault)])
    tally = tallied(first, live=live)
    assert tally.links == {(2, 3): LinkState(5_000_000, MBIT, False)}
    assert tally.links[2, 3].words == "5 ms, 1 Mbit/s"
    assert list(tally.notes.values()) == [
        "rank 3 slowed ×2",
        "rank 2 killed",
        "rank 1 frozen",
        "rank 0 slowed ×4",
        "rank 1 removed",
        "rank 0 preempted",
        "rank 1 added",
        "rank 2 frozen for 1 s",
    ]
    undone = [{"name": "thaw", "peer": 1, "value": NAN}, {"name": "slow", "peer": 0, "value": 1.0}]
    tally = tallied(first, table([FAULT | each for each in undone]), live=live)
    assert "freeze 1" not in tally.notes and "slow 0" not in tally.notes
    assert tally.ranks == 4


def test_the_rate_is_that_of_the_last_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("workbench.views.pages.tally.time.monotonic", lambda: clock[0])
    tally = Tally(Store(), {})
    for position in range(0, 5000, 100):
        clock[0] += 0.04
        tally.absorb(passages([]), position)
    assert tally.per_second(over=False) == pytest.approx(2500, rel=0.1)
    clock[0] += 0.04
    for _ in range(30):
        clock[0] += 0.04
        tally.absorb(passages([]), 4900)
    assert tally.per_second(over=False) == 0


def test_microseconds_are_µs_in_all_words_however_they_were_written() -> None:
    for written in ("60 us", "60us", "60 µs", "60 μs"):  # both letters, and none
        network = wb.Network(
            latency=written, links={"0->1": wb.Link(latency=written, bandwidth="1 Mbit/s")}
        )
        header = facts_of(ranks=2, network=network)
        assert header["emulated"][0]["words"] == "link 0 → 1 emulated: 60 µs, 1 Mbit/s"
        assert header["notes"] == ["all links emulated: 60 µs"]
        plan = wb.plan("all_reduce", "ring", ranks=2, nbytes="8 kB", latency=written)
        picture = svg(select(plan.store, "collectives"))
        assert "60 µs" in str(facts(plan.store.metadata)["notes"])
        for page in (json.dumps(header, ensure_ascii=False), picture):
            assert not re.search(r"\d\s?(us|μs)\b", page)
    live = LinkState(latency_ns=60_000, ps_per_byte=MBIT, down=False)
    assert live.words == "60 µs, 1 Mbit/s"
