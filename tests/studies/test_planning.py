"""wb.plan: a collective's numbers and picture before anything runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import workbench as wb
from workbench.laws import check_events
from workbench.theory import cost_model
from workbench.views.pages.facts import facts
from workbench.views.stills.still import select

SLOW = {"latency": "1 ms", "bandwidth": "100 Mbit/s"}


def test_a_plan_has_the_model_s_numbers_and_a_run_s_events() -> None:
    planned = wb.plan("all_reduce", "ring", ranks=4, nbytes="1 MB", **SLOW)
    assert planned.steps == 6 and planned.bytes_sent == (1_500_000,) * 4
    assert planned.seconds == pytest.approx(6 * 1e-3 + 1.5e6 / 12.5e6)
    assert check_events(planned.events) == []
    lasts = planned.events["end_ns"].max() - planned.events["start_ns"].min()  # type: ignore[operator]
    assert lasts / 1e9 == pytest.approx(planned.seconds, rel=1e-6)
    assert repr(planned) == (
        "Ring all-reduce of 1 MB over 4 ranks, planned: 6 steps, 126 ms; "
        "the busiest rank sends 1.5 MB."
    )
    added = wb.plan("all_reduce", "ring", ranks=4, nbytes="1 MB", adding="1 GB/s", **SLOW)
    assert added.seconds == pytest.approx(planned.seconds + 0.75e6 / 1e9)


def test_operations_with_a_root_and_without_bytes_are_planned() -> None:
    tree = wb.plan("broadcast", "tree", ranks=5, nbytes=4000, root=3)
    assert tree.bytes_sent == (4000, 0, 0, 12_000, 0)  # 3→2, then 3→0, then 3→4 0→1
    barrier = wb.plan("barrier", "dissemination", ranks=5, latency="1 ms")
    assert repr(barrier) == "Dissemination barrier over 5 ranks, planned: 3 steps, 3 ms."
    assert barrier.events.filter(barrier.events["kind"] == "send").height == 15
    alone = wb.plan("all_reduce", "ring", ranks=1, nbytes=400)
    assert (alone.steps, alone.seconds, alone.bytes_sent) == (0, 0, (0,))
    three = wb.plan("all_reduce", cost_model.hierarchical([2, 2, 2]), ranks=8, nbytes=8000)
    assert three.steps == 6


def test_pages_and_stills_say_that_nothing_was_measured(tmp_path: Path) -> None:
    planned = wb.plan("gather", "tree", ranks=4, nbytes=4096, root=1, **SLOW)
    run_facts = facts(planned.store.metadata)
    assert run_facts["planned"] == repr(planned) and run_facts["title"] == "Tree gather, planned"
    assert run_facts["notes"] == ["model: 1 ms a message, 100 Mbit/s sent"]
    theory = run_facts["theory"]["gather/tree"]
    assert (theory["steps"], theory["share"]) == (2, 0.5)
    assert theory["sends"] == ["0000", "0100", "0011", "0001"], "chunks that each rank sends"
    assert facts({})["planned"] == ""
    assert select(planned.store).sentence == repr(planned)
    planned.store.save(tmp_path / "plan.parquet")
    assert facts(wb.load(tmp_path / "plan.parquet").store.metadata)["planned"] == repr(planned)
    planned.to_html(tmp_path / "plan.html")
    assert "Tree gather, planned, 4 ranks" in (tmp_path / "plan.html").read_text()


def test_what_cannot_be_planned_is_refused_in_words() -> None:
    with pytest.raises(
        wb.SpecError, match=r"no algorithm 'rign' of all_reduce .*'ring'.*; it knows ring"
    ):
        wb.plan("all_reduce", "rign", ranks=4, nbytes=400)
    with pytest.raises(wb.SpecError, match=r"no operation 'allreduce' .*it knows all_reduce"):
        wb.plan("allreduce", "ring", ranks=4, nbytes=400)
    with pytest.raises(wb.SpecError, match="got 4 ranks, root 4"):
        wb.plan("broadcast", "flat", ranks=4, nbytes=400, root=4)
    with pytest.raises(wb.SpecError, match="10 bytes are not a whole number of elements of 4"):
        wb.plan("all_reduce", "ring", ranks=4, nbytes=10)
    with pytest.raises(wb.SpecError, match=r"levels \[4, 2\] make 8 ranks, not 6"):
        wb.plan("all_reduce", cost_model.hierarchical([4, 2]), ranks=6, nbytes=24)
    with pytest.raises(wb.SpecError, match="bandwidth"):
        wb.plan("all_reduce", "ring", ranks=4, nbytes=400, bandwidth="fast")
    with pytest.raises(wb.SpecError, match="nbytes = -4: must be a number of bytes from 0"):
        wb.plan("all_reduce", "ring", ranks=4, nbytes=-4)


def test_planning_needs_neither_torch_nor_a_user_interface() -> None:
    code = (
        "import sys, workbench as wb; wb.plan('all_reduce', 'ring', ranks=4, nbytes=400); "
        "print([m for m in ('torch', 'anywidget', 'plotly', 'panel') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
