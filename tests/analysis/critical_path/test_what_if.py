"""Predictions of changed runs, by rows made by hand; when none is given; and one that is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.analysis.critical_path.golden import UNIT, Rows, exchange, row
from tests.live import PATIENCE, lenet
from tests.synthetic import table
from workbench.analysis.critical_path.what_if import Prediction, Retimer, changes_of
from workbench.common.errors import SpecError
from workbench.runs.loaded import Loaded
from workbench.store.event_store import Store
from workbench.store.holds import note_hold
from workbench.studies import calibration

LATENCY = wb.Network(latency="1 ms")
LONG = 12  # iterations


def iterations(lengths: list[float]) -> Rows:
    """Iterations of two ranks: rank 0 computes 5, rank 1 so long; rank 1 adds what rank 0 sends and
    sends it back, each message on its way for 1: 7, where rank 1 computes less than that.
    """
    rows, begin, other = [], 0.0, 0.0
    for number, units in enumerate(lengths):
        place = {"iteration": number, "op": number}
        leaves, own = begin + 5, other + units
        there = max(own, leaves + 1)
        back = there + 1
        rows += [
            row(0, "forward", begin, leaves, seq=10 * number, **place),
            exchange("send", 0, 1, leaves, 0, seq=10 * number, **place),
            exchange("recv", 0, 1, back, 1, seq=10 * number + 1, **place),
            row(0, "optimizer", back, back, seq=10 * number + 2, **place),
            row(1, "forward", other, own, seq=10 * number, **place),
            exchange("recv", 1, 0, there, 0, seq=10 * number, **place),
            exchange("send", 1, 0, there, 1, seq=10 * number + 1, **place),
            row(1, "optimizer", there, there, seq=10 * number + 2, **place),
        ]
        begin, other = back, there
    return rows


def metadata(**fields: Any) -> dict[str, str]:
    exp = lenet(**{"ranks": 2, "iterations": LONG, "network": LATENCY, **fields})
    return {"experiment": exp.to_yaml(), "ok": "True"}


def retimer(
    rows: Rows | None = None, facts: dict[str, str] | None = None, dropped: int = 0
) -> Retimer:
    even = iterations([6.0] * LONG)
    return Retimer(table(even if rows is None else rows), facts or metadata(), dropped)


def predict(links: Any = None, compute: Any = None) -> Prediction:
    return retimer().predict(changes_of(links, compute))


def test_a_change_is_timed_by_dependencies_and_has_an_interval() -> None:
    same = predict()
    assert (same.ms, same.base_ms, same.why_not) == (7, 7, "")
    assert (same.low, same.high) == (pytest.approx(6.65), pytest.approx(7.35))
    assert predict(compute={1: 7 / 6}).ms == pytest.approx(7), "within its slack"
    assert predict(compute={1: 1.5}).ms == pytest.approx(9)
    assert predict(links={(0, 1): wb.Link(latency="3 ms")}).ms == pytest.approx(9)
    assert predict(links={(1, 0): wb.Link(latency="2 ms")}).ms == pytest.approx(8)
    both = predict({(0, 1): wb.Link(latency="3 ms")}, {0: 2})
    assert both.ms == pytest.approx(14)
    assert both.words == (
        "Link 0 → 1 at 3 ms and rank 0 computes 2 times as long: an iteration takes 14 ms (13.3 to "
        "14.7) instead of 7 ms. The largest part of its critical path is then computing on rank 0."
    )
    narrow = predict(links={(0, 1): wb.Link(bandwidth="500 MB/s")})
    assert narrow.ms == pytest.approx(7 + UNIT / 500e6 * 1e3), "the latency is as it was"


def test_what_helps_is_ordered_by_gain_and_another_path_takes_over() -> None:
    helps = retimer().helps()
    first = helps.row(0, named=True)
    assert first["change"] == "rank 0 computes twice as fast"
    assert first["gain_ms"] == pytest.approx(1), "and not 2.5: rank 1 computes 6"
    assert helps["gain_ms"].to_list() == sorted(helps["gain_ms"], reverse=True)
    by = {(kind, rank): gain for kind, rank, gain in helps.select("kind", "rank", "gain_ms").rows()}
    assert by["compute", 1] == 0 and by["latency", 0] == pytest.approx(0.5)


def overrun(rows: Rows) -> Rows:
    marks = [one for one in rows if one["kind"] == "forward"]
    return [*rows, *({**one, "kind": "metric", "name": "pad overrun"} for one in marks)]


def held() -> dict[str, str]:
    facts = metadata()
    note_hold(facts, True, 20 * UNIT)
    note_hold(facts, False, 21 * UNIT)
    return facts


EVEN = iterations([6.0] * LONG)
FREEZE = row(-1, "fault", 30, 30, name="freeze", peer=1)
SERVED = {"strategy": "parameter_server", "ranks": 3}
REFUSED: dict[str, tuple[Rows, dict[str, str], int, str]] = {
    "no experiment": (EVEN, {"ok": "True"}, 0, "no experiment"),
    "few iterations": (iterations([6.0] * 4), metadata(), 0, "3 finished iterations"),
    "uneven ones": (iterations([6.0, 6, 19, 18, 6] * 3), metadata(), 0, "differ too much"),
    "dropped rows": (EVEN, metadata(), 9, "9 of its rows were lost"),
    "lost sends": (
        [one for one in EVEN if one["kind"] != "send"],
        metadata(),
        0,
        "was not recorded",
    ),
    "neighbors": (EVEN, metadata(strategy="gossip"), 0, "whichever message comes first"),
    "asynchronous": (EVEN, metadata(**SERVED, options={"consistency": "asp"}), 0, "do not wait"),
    "pipedream": (
        EVEN,
        metadata(strategy="pipeline", options={"schedule": "pipedream"}),
        0,
        "is asynchronous",
    ),
    "cards": (EVEN, metadata(network=wb.Network(levels=(1, 2), nic="1 Gbit/s")), 0, "cards"),
    "switch": (EVEN, metadata(network=wb.Network(levels=(1, 2), switch="1 Gbit/s")), 0, "switch"),
    "held": (EVEN, held(), 0, "held by a reader"),
    "a fault": ([*EVEN, FREEZE], metadata(), 0, "fault struck in these iterations: freeze"),
    "overrun": (overrun(EVEN), metadata(pad_compute="1 ms"), 0, "longer than their pads"),
    "faster links": (EVEN, metadata(network=wb.Network(latency="3 ms")), 0, "were faster"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_where_the_record_does_not_carry_an_answer_a_sentence_says_why(name: str) -> None:
    rows, facts, dropped, why = REFUSED[name]
    one = retimer(rows, facts, dropped)
    answer = one.predict(changes_of(None, {0: 2}))
    assert (answer.ms, answer.low, answer.high) == (None, None, None)
    assert why in answer.why_not and answer.why_not.endswith("."), answer
    assert one.helps().height == 0


def test_synchronous_servers_are_answered() -> None:
    assert retimer(EVEN, metadata(**SERVED)).why_not == ""


def test_a_path_that_would_lie_in_no_row_is_refused() -> None:
    """Each optimizer begins 0.3 late: 0.3 of 7.3 is in no row, and more of less than 3."""
    late = iterations([1.0] * LONG)
    for one in late:
        number = int(str(one["iteration"]))
        own = 0.3 * (number + (one["kind"] == "optimizer"))
        for at in ("start_ns", "end_ns"):
            one[at] = int(str(one[at])) + round(own * UNIT)
    one = retimer(late)
    assert one.why_not == ""
    assert one.predict(changes_of(None, {0: 1.5})).ms == pytest.approx(9.8)
    answer = one.predict(changes_of(None, {0: 0.1, 1: 0.1}))
    assert answer.ms is None and "would be in no row" in answer.why_not


@pytest.mark.parametrize(
    ("links", "compute"),
    [
        ({(0, 9): wb.Link(latency="1 ms")}, None),
        ({(0, 0): wb.Link(latency="1 ms")}, None),
        ({(0, 1): wb.Link()}, None),
        ({(0, 1): wb.Link(down=True)}, None),
        ("0->1", None),
        (None, {0: 0}),
        (None, {0: True}),
        (None, {7: 2}),
        (None, [2]),
        (None, {"0": 2}),
    ],
)
def test_changes_of_what_is_not_there_are_refused(links: Any, compute: Any) -> None:
    with pytest.raises(SpecError):
        retimer().predict(changes_of(links, compute))


def test_a_prediction_is_proven_by_running_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert wb.about().predictions.startswith("none proven here yet")
    exp = lenet(ranks=2, iterations=7, pad_compute="15 ms", network=LATENCY)
    run = wb.run(exp)
    run.wait(timeout=PATIENCE)
    proof = run.what_if(links={(0, 1): wb.Link(latency="40 ms")}).prove(repeats=1)
    assert proof.table["experiment"].to_list() == ["base", "changed"]
    assert proof.measured_ms > proof.base_ms + 40
    assert proof.disturbed == sum(why != "" for why in proof.table["disturbed"])
    assert f"easured {proof.measured_ms:.4g} ms" in proof.words
    (line,) = calibration.place().read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["measured_ms"] == proof.measured_ms
    with pytest.raises(SpecError, match="no rank can be made faster"):
        run.what_if(compute={0: 0.5}).prove()
    job = Loaded(Store.from_frame(table(EVEN)))
    with pytest.raises(SpecError, match="no experiment"):
        job.what_if(compute={0: 2}).prove()


def test_proofs_are_counted_and_damaged_lines_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for measured, low, high in ((100, 95, 105), (93, 90, 110), (50, 95, 105)):
        calibration.keep({"ms": 100, "low": low, "high": high, "measured_ms": measured})
    calibration.keep({"ms": None, "low": None, "high": None, "measured_ms": 3})
    calibration.keep({"ms": 9, "low": 8, "high": 10, "measured_ms": 30, "disturbed": 1})
    with calibration.place().open("a", encoding="utf-8") as file:
        file.write("{\n[1]\n")
    words = "3 proven here: 1 within 5%, 2 within 10%, 2 inside of their interval"
    assert calibration.summary() == words and words in str(wb.about())
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/none")
    calibration.keep({"ms": 1})
    assert calibration.summary().startswith("none proven here yet")


def test_what_a_link_leaves_out_is_as_it_was() -> None:
    one = retimer(facts=metadata(network=wb.Network(latency="1 ms", bandwidth="500 MB/s")))
    slower, narrower = wb.Link(latency="3 ms"), wb.Link(bandwidth="250 MB/s")
    assert one.paced({(0, 1): slower, (1, 0): narrower}) == {(0, 1): (3e6, 2), (1, 0): (1e6, 4)}
