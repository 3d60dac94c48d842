"""What a page may ask of the ranks: done as asked, or refused in words and nothing done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import workbench as wb
from tests.live import LONG, gone, lenet, training, until
from tests.page import Client
from workbench.recording.events import KINDS
from workbench.runs.loaded import Loaded
from workbench.runs.steering import Steering
from workbench.shared_memory.control_state import ControlState
from workbench.store.event_store import Store
from workbench.views.pages.commands import obey
from workbench.views.pages.feed import feed


class Ranks(Steering):
    """Three ranks; what is done to them is written down."""

    pids: Any = {0: 10, 1: 11, 2: 12}  # noqa: RUF012

    def __init__(self, **state: Any) -> None:
        self.done, self.calls = False, list[Any]()
        free = {"held": True, "standing": (), "slow_motion": 1.0, "slow": {}, "frozen": ()}
        self.control_state = ControlState(**{**free, "links": {}, **state})
        for verb in "pause resume step slow_motion stop kill freeze thaw slow corrupt link".split():
            setattr(self, verb, self._written(verb))

    def _written(self, verb: str) -> Any:
        return lambda *args, **named: self.calls.append((verb, args, named))


def do(run: Any, verb: Any, readonly: bool = False, **args: Any) -> tuple[bool, str]:
    answer = obey(run, {"type": "do", "id": 5, "verb": verb, "args": args}, readonly)
    assert (answer["type"], answer["id"]) == ("said", 5) and answer["words"]
    return answer["ok"], answer["words"]


@pytest.mark.parametrize(
    ("verb", "args", "call"),
    [
        ("pause", {}, ((), {})),
        ("resume", {}, ((), {})),
        ("step", {}, ((1,), {"unit": "chunk"})),
        ("step", {"count": 3, "unit": "iteration"}, ((3,), {"unit": "iteration"})),
        ("slow_motion", {"factor": 20}, ((20.0,), {})),
        ("stop", {}, ((), {})),
        ("kill", {"rank": 2}, ((2,), {})),
        ("freeze", {"rank": 0}, ((0,), {})),
        ("thaw", {"rank": 0}, ((0,), {})),
        ("slow", {"rank": 1, "factor": 1}, ((1, 1.0), {})),
        ("corrupt", {"rank": 1}, ((1, "nan"), {})),
        ("corrupt", {"rank": 1, "kind": "shape"}, ((1, "shape"), {})),
        (
            "link",
            {"source": 0, "target": 1, "latency": "5 ms", "both": True},
            ((0, 1), {"latency": "5 ms", "bandwidth": None, "down": None, "both": True}),
        ),
        (
            "link",
            {"source": 2, "target": 1, "bandwidth": "unlimited", "down": False},
            ((2, 1), {"latency": None, "bandwidth": "unlimited", "down": False, "both": False}),
        ),
    ],
)
def test_what_is_asked_is_done(verb: str, args: dict[str, Any], call: Any) -> None:
    run = Ranks()
    ok, words = do(run, verb, **args)
    assert ok, words
    assert run.calls == [(verb, *call)]


def test_all_links_are_changed_at_once_both_ways() -> None:
    run = Ranks()
    ok, words = do(run, "link", every=True, latency="5 ms")
    assert ok and words == "All 6 links: latency 5 ms."
    assert [call[1] for call in run.calls] == [(0, 1), (0, 2), (1, 2)]
    assert all(call[2]["both"] and call[2]["latency"] == "5 ms" for call in run.calls)
    run.calls.clear()
    run.pids = {rank: rank for rank in range(17)}
    ok, words = do(run, "link", every=True, latency="5 ms")
    assert not ok and "at most 16 ranks" in words and not run.calls


@pytest.mark.parametrize(
    ("verb", "args", "says"),
    [
        ("juggle", {}, "known are pause"),
        (None, {}, "known are pause"),
        (["kill"], {}, "known are pause"),
        ("_signal", {"rank": 1}, "known are pause"),
        ("kill", {}, "no rank None"),
        ("kill", {"rank": 3}, "ranks 0 to 2"),
        ("kill", {"rank": -1}, "ranks 0 to 2"),
        ("kill", {"rank": True}, "no rank True"),
        ("kill", {"rank": "1"}, "no rank '1'"),
        ("kill", {"rank": 1, "force": True}, "does not take force"),
        ("corrupt", {"rank": 3}, "ranks 0 to 2"),
        ("corrupt", {"rank": 1, "kind": "bytes"}, "nan, raises, shape, bitflip; not 'bytes'"),
        ("corrupt", {"rank": 1, "kind": ["nan"]}, "not ['nan']"),
        ("slow", {"rank": 1, "factor": 0.5}, "from 1 (full speed)"),
        ("slow", {"rank": 1, "factor": float("nan")}, "from 1 (full speed)"),
        ("slow_motion", {"factor": "20"}, "not '20'"),
        ("slow_motion", {"factor": 1e9}, "1,000,000"),
        ("slow_motion", {}, "not None"),
        ("step", {"unit": "mile"}, "a chunk, a step or an iteration"),
        ("step", {"unit": ["chunk"]}, "a chunk, a step or an iteration"),
        ("step", {"count": 0}, "from 1 to 100"),
        ("step", {"count": 1.5}, "from 1 to 100"),
        ("link", {"source": 1, "target": 1, "down": True}, "joins two ranks"),
        ("link", {"source": 0, "target": 7, "down": True}, "ranks 0 to 2"),
        ("link", {"source": 0, "target": 1}, "Say what"),
        ("link", {"source": 0, "target": 1, "latency": "5"}, "no unit"),
        ("link", {"source": 0, "target": 1, "latency": {}}, "not a duration"),
        ("link", {"source": 0, "target": 1, "bandwidth": "5 ms"}, "the unit 'ms' is not known"),
        ("link", {"source": 0, "target": 1, "bandwidth": "0 bit/s"}, "lets nothing through"),
        ("link", {"source": 0, "target": 1, "down": "yes"}, "true or false"),
    ],
)
def test_a_bad_one_is_answered_in_words_and_does_nothing(
    verb: Any, args: dict[str, Any], says: str
) -> None:
    run = Ranks()
    ok, words = do(run, verb, **args)
    assert not ok and says in words
    assert run.calls == []


def test_arguments_that_are_none_are_refused() -> None:
    run = Ranks()
    answer = obey(run, {"type": "do", "id": 1, "verb": "kill", "args": [2]})
    assert not answer["ok"] and run.calls == []
    assert obey(run, {"type": "do", "verb": "pause"})["ok"]


def test_pages_that_watch_and_runs_that_cannot_change_are_refused() -> None:
    run = Ranks()
    assert "only watches" in do(run, "kill", readonly=True, rank=1)[1]
    assert not do(run, "pause", readonly=True)[0]
    run.done = True
    assert "over" in do(run, "pause")[1]
    assert run.calls == []
    assert "started elsewhere" in do(Loaded(Store()), "kill", rank=0)[1]


def test_a_rank_that_is_gone_and_ranks_that_run_are_told_apart() -> None:
    run = Ranks(held=False, ended={2: "killed by SIGKILL"})
    assert "hold them first" in do(run, "step")[1]
    assert do(run, "freeze", rank=2) == (False, "Rank 2 is gone: killed by SIGKILL.")
    assert run.calls == []


# ---- real ranks


@pytest.fixture
def shown() -> Iterator[tuple[wb.Run, Client, Any]]:
    run, client = wb.run(lenet(ranks=3, iterations=LONG)), Client()
    page = feed(run).join(client.send)
    page.hear({"type": "hello"})
    try:
        yield training(run), client, page
    finally:
        run.stop()
        run.wait(120, check=False)
        until(lambda: gone(run.pids.values()))


def test_a_page_holds_steps_slows_and_ends_real_ranks(
    shown: tuple[wb.Run, Client, Any],
) -> None:
    run, client, page = shown
    now = lambda: client.last["control"]  # noqa: E731
    assert client.ask(page, "pause")["ok"]
    client.until(lambda: now()["held"] and now()["standing"], what="they stand")
    client.until(lambda: client.last["lanes_now"], what="what they are held in")
    held = client.last["lanes_now"][0]
    assert held["kind"] in KINDS
    rows = client.table.height
    assert client.ask(page, "step", unit="iteration")["ok"]
    client.until(lambda: client.table.height > rows, what="one step on")
    assert client.ask(page, "link", source=0, target=1, latency="2 ms")["ok"]
    client.until(lambda: now()["links"])
    assert client.last["run"]["emulated"][0]["words"] == "link 0 → 1 emulated: 2 ms"
    assert client.ask(page, "slow_motion", factor=5)["ok"]
    assert client.ask(page, "slow", rank=1, factor=3)["ok"]
    assert client.ask(page, "freeze", rank=2)["ok"]
    client.until(lambda: (now()["slow_motion"], now()["slow"]) == (5, {1: 3}))
    client.until(lambda: now()["frozen"] == [2])
    client.until(lambda: "rank 2 frozen" in client.last["run"]["notes"])
    assert client.ask(page, "thaw", rank=2)["ok"] and client.ask(page, "resume")["ok"]
    client.until(lambda: not now()["held"] and not now()["frozen"])
    at = client.last["counters"]["iteration"]
    client.until(lambda: client.last["counters"]["iteration"] > at, what="they go on")
    assert client.ask(page, "stop")["ok"]
    client.until(lambda: client.last["state"] == "finished", 60)
    assert client.last["words"].startswith("Stopped after")
    assert client.last["counters"]["accuracy"] is not None and client.last["now"] is None
    assert now()["pids"] == run.pids and now()["ended"] == {}
    assert client.table.height == len(run.store)
    assert not client.ask(page, "pause")["ok"]


def test_a_page_sees_which_rank_was_killed(shown: tuple[wb.Run, Client, Any]) -> None:
    run, client, page = shown
    assert client.ask(page, "kill", rank=1)["ok"]
    client.until(lambda: client.last["control"]["ended"], what="its end")
    client.until(lambda: client.last["state"] == "failed", 30)
    assert client.last["control"]["ended"] == {1: "killed by SIGKILL"}
    assert "rank 1" in client.last["words"] and run.done


def test_a_page_has_ranks_leave_and_join_and_a_checkpoint_written(tmp_path: Path) -> None:
    plan = wb.Checkpoint(folder=str(tmp_path), every=0)
    run = wb.run(
        lenet(ranks=3, iterations=LONG, recovery="shrink", checkpoint=plan, pad_compute="20 ms")
    )
    try:
        training(run, 2)
        ok, words = do(run, "checkpoint")
        assert ok and words.startswith(("iteration-", "The ranks write")), words
        until(lambda: [*tmp_path.glob("iteration-*/checkpoint.json")], 60, "a checkpoint")
        assert do(run, "add_rank") == (False, AnyText("all 3 ranks of the run train"))
        assert do(run, "remove_rank", rank=1) == (True, "Rank 1 leaves before its next iteration.")
        until(lambda: run.recovery().table.height == 1, 60, "the others go on")
        assert do(run, "add_rank") == (True, "Rank 1 is about to join.")
        until(lambda: run.recovery().table.height == 2, 60, "it trains with them")
        assert do(run, "preempt", rank=2) == (True, "Rank 2 was given notice (SIGTERM).")
        until(lambda: run.recovery().table.height == 3, 60, "it has left")
    finally:
        run.stop()
        run.wait(timeout=60, check=False)


def test_a_page_corrupts_the_next_minibatch_and_all_ranks_leave_it_out() -> None:
    run = wb.run(lenet(ranks=2, iterations=LONG, bad_minibatch="skip"))
    try:
        until(lambda: run.control_state.loads == (0, 1), 60, "both load samples")
        assert do(run, "corrupt", rank=1) == (True, AnyText("next minibatch of rank 1 is corrupt"))
        until(run.skipped, 60, "it is found")
        assert run.control_state.corrupts == ()
    finally:
        run.stop()
        run.wait(timeout=60, check=False)
    (one,) = run.skipped()
    rows = run.events.with_columns(pl.col("kind", "name", "group").cast(pl.String))
    struck = rows.filter(pl.col("kind") == "fault", pl.col("name") == "corrupt nan")
    assert struck.select("rank", "group", "iteration", "value").rows() == [
        (1, "by hand", one.iteration, one.bad[0])
    ]
    assert len(set(run.result.digests.values())) == 1


class AnyText(str):
    """Equal to a text that has it somewhere."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and str(self) in other

    __hash__ = str.__hash__
