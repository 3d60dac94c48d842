"""What "auto" takes: the fastest by its costs, the same everywhere, and it says why."""

from __future__ import annotations

import json
import weakref
from itertools import pairwise
from pathlib import Path

import pytest

import workbench as wb
from tests.processes import values
from workbench.choosing import predict as predict_module
from workbench.choosing.choose import (
    EQUAL,
    STEPS,
    candidates,
    choose,
    in_words,
    ranges,
    refuses,
    size,
    times,
    why,
)
from workbench.choosing.costs import Costs, Links, Machine, cores, load, slow_down
from workbench.choosing.predict import busiest_sends, predict
from workbench.choosing.recorded import record_choice
from workbench.collectives import OPERATIONS, algorithms
from workbench.common.errors import SpecError
from workbench.common.units import print_seconds
from workbench.store.event_store import Store

FREE = Machine(0, 0, 0, 0)
DEAR_WAITS = Costs({4: Machine(1e-3, 1e-6, 1e-12, 0)}, cores=64)
DEAR_BYTES = Costs({4: Machine(1e-9, 1e-9, 1e-9, 1e-10)}, cores=64)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("n", [2, 3, 4, 7])
def test_it_takes_one_of_the_fastest_and_of_those_the_one_that_sends_least(
    operation: str, n: int
) -> None:
    costs = load()
    for nbytes in (0,) if operation == "barrier" else (64, 1 << 14, 1 << 20, 1 << 26):
        seconds = times(operation, n, nbytes, costs)
        assert set(seconds) == set(candidates(operation, n))
        chosen = choose(operation, n, nbytes, costs)
        assert seconds[chosen] <= EQUAL * min(seconds.values())


def test_dear_waits_ask_for_few_steps_and_dear_bytes_for_few_bytes() -> None:
    from workbench.theory import cost_model

    few_steps = choose("all_reduce", 4, 1 << 20, DEAR_WAITS)
    few_bytes = choose("all_reduce", 4, 1 << 20, DEAR_BYTES)
    assert cost_model.steps(few_steps, 4) < cost_model.steps("ring", 4)
    assert max(cost_model.bytes_sent(few_bytes, 4, 1 << 20)) == cost_model.lower_bound(4, 1 << 20)


def test_links_decide_with_the_machine() -> None:
    far = Links(latency_s=20e-3)
    near = Costs({4: FREE}, links=Links(s_per_byte=1e-7), cores=64)
    assert choose("all_reduce", 4, 1 << 20, near) in ("ring", "rabenseifner", "hierarchical")
    late = times("all_reduce", 4, 1 << 14, near.over(far))
    assert late[choose("all_reduce", 4, 1 << 14, near.over(far))] < late["ring"] / 2


def test_one_slow_link_is_avoided() -> None:
    """A tree's root does not wait for it, where a ring passes it in both of its phases."""
    costs = Costs({4: FREE}, links=Links(1e-5, 0.0, ((3, 0, 50e-3, 0.0),)), cores=64)
    seconds = times("all_reduce", 4, 4096, costs)
    assert seconds["ring"] > 1.9 * 50e-3
    assert seconds[choose("all_reduce", 4, 4096, costs)] < 0.2 * seconds["ring"]


def test_the_same_costs_give_the_same_answer_after_they_were_sent() -> None:
    costs = load().over(Links(1e-3, 1e-8))
    other = Costs.from_json(costs.to_json())
    for nbytes in (64, 5000, 1 << 17, 3_000_000):
        assert choose("all_reduce", 4, nbytes, costs) == choose("all_reduce", 4, nbytes, other)


def test_own_factors_count() -> None:
    costs = Costs({4: DEAR_BYTES.machine(4)}, cores=64)
    usual = choose("all_reduce", 4, 1 << 20, costs)
    off = Costs(costs.machines, {("all_reduce", usual, 4): ((1024, 9.0),)}, cores=64)
    assert choose("all_reduce", 4, 1 << 20, off) != usual
    ratio = predict("all_reduce", usual, 4, 1 << 20, off) / predict(
        "all_reduce", usual, 4, 1 << 20, costs
    )
    assert ratio == pytest.approx(9.0)


def test_large_sizes_are_told_from_smaller_ones() -> None:
    """Beyond some slots a rank every further one costs the same."""
    from workbench.choosing.clock import replay
    from workbench.choosing.predict import function_of
    from workbench.theory.walk import walk

    costs = Costs({4: Machine(1e-5, 5e-6, 1e-10, 1e-10)}, cores=2)
    for name in candidates("all_reduce", 4):
        moves = walk("all_reduce", function_of("all_reduce", name), 4, 1 << 23, costs.slot_bytes)
        whole = replay(moves, costs.machine(4), cores=2).seconds
        assert predict("all_reduce", name, 4, 1 << 23, costs) == pytest.approx(whole, rel=0.05)


def test_where_ranks_outnumber_cores_a_core_sends_for_several() -> None:
    """The root of a naive all-reduce of 1 MiB sends 3 MiB, as much as it is sent; a butterfly's
    ranks send 2 MiB each, 8 in all.
    """
    sent = {}
    for n_cores in (64, 2):
        costs = Costs({4: FREE}, cores=n_cores)
        for name in ("naive", "butterfly"):
            nbytes, slots, of_rank, _ = busiest_sends("all_reduce", name, 4, 1 << 20, costs)
            assert slots == nbytes / costs.slot_bytes
            sent[name, n_cores] = nbytes / (1 << 20), of_rank / (1 << 20)
    assert sent == {
        ("naive", 64): (3, 3),
        ("butterfly", 64): (2, 2),
        ("naive", 2): (3, 3),
        ("butterfly", 2): (4, 2),
    }


def test_those_that_do_not_take_so_many_ranks_take_no_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from workbench.collectives import all_reduce_ring

    monkeypatch.setattr(
        all_reduce_ring, "takes", lambda n: "even numbers" if n % 2 else "", raising=False
    )
    assert refuses("all_reduce", "ring", 3) == "even numbers"
    assert "ring" not in candidates("all_reduce", 3) and "ring" in candidates("all_reduce", 4)
    assert choose("all_reduce", 3, 1 << 26, load()) != "ring"


def test_it_says_why() -> None:
    costs = load()
    reasons = why("all_reduce", 4, 1 << 20, costs)
    text = str(reasons)
    assert reasons.chosen in text and "predicted" in text and costs.source in text
    assert all(name in text for name in candidates("all_reduce", 4))
    assert in_words(ranges("all_reduce", 4, costs)) in text
    assert str(wb.why("all_reduce", "1 MiB", 4)) == text
    paced = wb.why("all_reduce", 1 << 20, 4, network=wb.Network(bandwidth="10 Mbit/s"))
    assert paced.seconds["ring"] > 1.2  # 1.5 MB over 1.25 MB/s


@pytest.mark.parametrize("operation", OPERATIONS)
def test_of_one_rank_there_is_nothing_to_wait_for(operation: str) -> None:
    assert why(operation, 1, 64, load()).seconds == {choose(operation, 1, 64, load()): 0.0}


def test_ranges_are_what_is_chosen_on_either_side() -> None:
    costs = load()
    winners = ranges("all_reduce", 4, costs)
    assert winners[-1][1] == 0
    for (name, most), (following, _) in pairwise(winners):
        assert name != following
        assert choose("all_reduce", 4, most, costs) == name
        assert choose("all_reduce", 4, round(most * 2 ** (1 / STEPS)), costs) == following
    assert in_words([("ring", 0)]) == "ring at every size"
    assert in_words([("one_shot", 32768), ("ring", 0)]) == "one_shot up to 32 KiB, ring above"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"operation": "all_reduc"}, "'all_reduc'.*'all_reduce'"),
        ({"nbytes": -1}, "-1"),
        ({"nbytes": "1 lot"}, "lot"),
        ({"ranks": 0}, "ranks = 0"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        wb.why(**arguments)  # type: ignore[arg-type]


def test_numbers_as_people_say_them() -> None:
    assert [size(n) for n in (64, 32768, 3 << 19)] == ["64 B", "32 KiB", "1.5 MiB"]
    assert [print_seconds(s) for s in (2.5e-6, 3.1e-3, 2.0)] == ["2.5 µs", "3.1 ms", "2 s"]


def _algorithms(rank: int, size: int, sizes: list[int]) -> list[str]:
    import torch
    import torch.distributed as dist

    group = dist.distributed_c10d._get_default_group()
    half = dist.new_group([size - 1, 0])
    choices = []
    for elements in sizes:
        x = torch.ones(elements)
        dist.all_reduce(x)
        assert x[0] == size
        choices.append(group.context.plans._choose("all_reduce", 4 * elements))
    if rank in (0, size - 1):
        x = torch.ones(1000)
        dist.all_reduce(x, group=half)
        assert x[0] == 2
    return choices


@pytest.mark.full
def test_ranks_that_know_other_costs_go_by_rank_0s(tmp_path: Path) -> None:
    """Else one would run a ring where another runs a tree."""
    paths = []
    for rank, costs in enumerate((DEAR_BYTES, DEAR_WAITS, DEAR_WAITS)):
        of_rank = Costs(costs.machines, source=str(rank), cores=cores())
        paths.append(tmp_path / f"{rank}.json")
        paths[-1].write_text(of_rank.to_json())
    sizes = [16, 10_000, 300_000]
    answers = values(_algorithms, 3, sizes, env=lambda rank: {"WORKBENCH_COSTS": str(paths[rank])})
    costs = Costs.from_json(paths[0].read_text())
    expected = [choose("all_reduce", 3, 4 * elements, costs) for elements in sizes]
    assert answers == [expected] * 3
    others = Costs.from_json(paths[1].read_text())
    assert expected != [choose("all_reduce", 3, 4 * elements, others) for elements in sizes]


def test_every_operation_has_a_candidate_for_every_number() -> None:
    for operation in OPERATIONS:
        assert all(candidates(operation, n) for n in range(2, 9))
        assert set(candidates(operation, 4)) <= set(algorithms(operation))


def test_walks_are_kept_by_what_they_hold_and_not_by_their_number() -> None:
    walks = predict_module.Walks(most=1_500)
    ring = predict_module.function_of("all_reduce", "ring")
    calls = [("all_reduce", ring, n, 1 << 16, 1 << 14, 1, ()) for n in range(2, 17)]
    for call in calls:
        again = walks(*call)
        assert walks(*call) is again  # the newest is at hand
        held = sum(len(moves) for kept in walks._kept.values() for moves in kept)
        assert walks.moves == held <= 1_500
    assert 1 < len(walks._kept) < len(calls)
    assert walks("all_reduce", ring, 16, 1 << 22, 1 << 12, 1, ()) and walks.moves == 0  # too long
    assert predict_module._moves.moves <= predict_module.MOST_MOVES


def test_a_factor_is_of_what_keeps_a_core_busy() -> None:
    """Without links that is all there is, so that one replay does for every factor."""
    base = Machine(20e-6, 5e-6, 1e-10, 2e-10, 50e-6)
    off = {("all_reduce", "tree", 4): ((1, 3.0),)}
    for links, paced in ((Links(), False), (Links(latency_s=1e-3), True)):
        plain, dear = Costs({4: base}, links=links, cores=4), Costs({4: base}, off, links, cores=4)
        once = predict("all_reduce", "tree", 4, 1 << 16, plain)
        thrice = predict("all_reduce", "tree", 4, 1 << 16, dear)
        by_hand = Costs({4: slow_down(base, 3.0)}, links=links, cores=4)
        assert thrice == pytest.approx(predict("all_reduce", "tree", 4, 1 << 16, by_hand), rel=1e-9)
        assert (thrice == pytest.approx(3 * once, rel=1e-9)) == (not paced)


def test_what_auto_takes_is_not_worked_out_for_a_run_that_does_not_exist() -> None:
    exp = wb.Experiment(ranks=4)
    costs, store = load(), Store()
    looks: list[int] = []

    def find_store(times: int) -> Store | None:
        looks.append(1)
        return store if len(looks) <= times else None

    record_choice(exp, costs, lambda: find_store(3))
    assert len(looks) == 4 and "auto" not in store.metadata
    record_choice(exp, costs, weakref.ref(store))
    words = in_words(ranges("all_reduce", 4, costs.cut_into(exp.chunk_bytes)))
    assert json.loads(store.metadata["auto"]) == words
