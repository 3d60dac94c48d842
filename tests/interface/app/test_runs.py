"""The runs that a server holds: real ranks, and a clock that the test moves."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.live import LONG, gone, lenet, training, until
from tests.pairwise import first
from workbench.interface.app import reserved
from workbench.interface.app import runs as server_runs
from workbench.interface.app.limits import Limits, Refused
from workbench.interface.app.reserved import foretold
from workbench.interface.app.reserved import held as weighed
from workbench.interface.app.runs import FORGET, PATIENCE, WEIGH, Hosted, Runs
from workbench.runs.history import History
from workbench.transports.sizes import mailbox_bytes
from workbench.user_code import source

GRACE = Limits().grace


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Page:
    """A page that can be open or not."""

    def __init__(self) -> None:
        self.open = True

    def __call__(self) -> bool:
        return self.open


@pytest.fixture
def clock() -> Clock:
    return Clock()


def held(clock: Clock, **limits: object) -> Runs:
    return Runs(Limits(**limits), clock=clock)


@pytest.fixture
def runs(clock: Clock) -> Iterator[Runs]:
    hosts = held(clock)
    yield hosts
    stop(hosts)


def stop(runs: Runs) -> None:
    """End what runs, but not the warm pool: the next test starts from it."""
    for hosted in runs.live:
        for rank in hosted.run.pids:
            hosted.run.kill(rank)
        hosted.run.wait(120, check=False)


def later(runs: Runs, clock: Clock, seconds: float) -> None:
    clock.now += seconds
    runs.tick()


def ended(hosted: Hosted) -> None:
    """Its ranks are no more."""
    pids = list(hosted.run.pids.values())
    hosted.run.wait(120, check=False)
    until(lambda: gone(pids), 5, "the ranks' end")


def test_a_run_ends_so_long_after_its_last_page_and_another_goes_on(
    runs: Runs, clock: Clock
) -> None:
    first, second = (runs.start(lenet(iterations=LONG), owner) for owner in ("me", "you"))
    pages = [Page(), Page()]
    for page in pages:
        runs.enter(first, page)
    runs.enter(second, Page())
    training(first.run), training(second.run)
    later(runs, clock, 100)
    pages[0].open = False
    later(runs, clock, GRACE * 2)
    assert not first.over and first.words == "", "one of its pages is still open"
    assert runs.seconds_alone(first) is None
    pages[1].open = False
    later(runs, clock, 0.1)
    later(runs, clock, GRACE - 1)
    assert runs.seconds_alone(first) == pytest.approx(1)
    assert not first.over and first.words == ""
    later(runs, clock, 1.1)
    assert first.words == "Its last page had been closed for 15 s, so its ranks were ended."
    ended(first)
    assert not second.over and second.words == ""


def test_a_page_that_comes_back_in_time_keeps_the_run(runs: Runs, clock: Clock) -> None:
    hosted = runs.start(lenet(iterations=LONG), "me")
    later(runs, clock, GRACE - 1)  # the first page is still on its way
    page = Page()
    leave = runs.enter(hosted, page)
    later(runs, clock, 10)
    leave()  # a reload: the old page's session ends, the new one begins
    later(runs, clock, GRACE - 1)
    runs.enter(hosted, Page())
    later(runs, clock, GRACE * 3)
    assert not hosted.over and hosted.words == ""


def test_a_page_whose_session_has_gone_counts_as_gone(runs: Runs, clock: Clock) -> None:
    hosted = runs.start(lenet(iterations=LONG), "me")

    def broken() -> bool:
        raise RuntimeError("this session was destroyed")

    runs.enter(hosted, broken)
    later(runs, clock, 0.1)
    later(runs, clock, GRACE)
    ended(hosted)


def test_time_over_ends_a_run_and_says_so(clock: Clock) -> None:
    runs = held(clock, minutes=2)
    hosted = runs.start(lenet(iterations=LONG), "me")
    runs.enter(hosted, Page())
    training(hosted.run)
    later(runs, clock, 110)
    assert runs.seconds_left(hosted) == pytest.approx(10)
    assert not hosted.over
    later(runs, clock, 11)
    assert hosted.words == "Its time is over: here a run lasts up to 2 minutes. (--max-minutes)"
    ended(hosted)
    assert hosted.run.result.ok, "it ended in good order: what it has done so far can be compared"


def test_ranks_that_do_not_end_are_killed(runs: Runs, clock: Clock) -> None:
    slow = wb.Network(latency="100 s")  # an iteration that does not end
    hosted = runs.start(lenet(iterations=LONG, network=slow), "me")
    until(lambda: hosted.run.events.filter(kind="forward").height, 30, "the ranks train")
    later(runs, clock, GRACE)
    time.sleep(0.5)
    assert not hosted.over, "it cannot end by itself"
    later(runs, clock, PATIENCE)
    ended(hosted)


def test_memory_beyond_the_limit_ends_a_run(clock: Clock) -> None:
    runs = held(clock, memory=40_000_000)
    hosted = runs.start(lenet(iterations=LONG), "me")
    runs.enter(hosted, Page())
    training(hosted.run)
    later(runs, clock, WEIGH)
    assert "of memory, and 40 MB are the most here, so they were ended." in hosted.words
    ended(hosted)


def test_memory_counts_what_is_reserved_before_it_is_touched(runs: Runs) -> None:
    """Mailboxes of 16 MiB slots, of which LeNet's gradients touch a few hundred kilobytes."""
    many = {"all_reduce": "one_shot", "chunk_bytes": 4 * 2**20, "ranks": 3}
    hosted = runs.start(lenet(iterations=LONG, **many), "me")
    training(hosted.run)
    pids = hosted.run.pids.values()
    mailboxes = 6 * mailbox_bytes(4 * 2**20)
    touched = sum(map(_shared_memory_touched, pids))
    assert mailboxes > 100_000_000 > 2 * touched
    own = sum(map(_own_memory, pids))
    assert mailboxes + 0.8 * own < weighed(pids) < weighed(pids, enough=10**12)
    exp = hosted.run.experiment
    foretold_bytes = foretold({name: getattr(exp, name) for name in type(exp).model_fields})
    assert mailboxes < foretold_bytes < 4 * mailboxes


def _own_memory(pid: int) -> int:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(rollup.partition("Pss_Anon:")[2].split()[0]) * 1024


def _shared_memory_touched(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("RssShmem:")[2].split()[0]) * 1024


@pytest.mark.parametrize("strategy", first(2, ["pipeline", "gossip", "ddp", "parameter_server"]))
def test_no_more_is_reserved_than_was_foretold(runs: Runs, strategy: str) -> None:
    hosted = runs.start(lenet(iterations=LONG, ranks=4, strategy=strategy), "me")
    training(hosted.run)
    exp = hosted.run.experiment
    most = foretold({name: getattr(exp, name) for name in type(exp).model_fields})
    assert 0 < reserved._reserved(hosted.run.pids.values()) <= most


def test_memory_that_would_be_reserved_is_refused_before_there_is_a_rank(runs: Runs) -> None:
    worst = lenet(ranks=16, all_reduce="one_shot", chunk_bytes=64 * 2**20)
    with pytest.raises(Refused, match=r"reserve up to 137\.\d\d GB .* 4 GB are the most here"):
        runs.start(worst, "me")
    assert not runs.live


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("char_transformer", {"layers": 10**18}),
        ("char_transformer", {"width": 10**9, "heads": 1}),
        ("mlp_layers", {"layers": 10**18}),
        ("mlp_layers", {"unused": 10**7}),
        ("mlp_layers", {"samples": 10**10}),
        ("mlp_fashion", {"hidden": [10**9, 10**9]}),
    ],
)
def test_a_model_beyond_the_limit_is_refused_before_it_is_made(
    runs: Runs, task: str, options: dict[str, Any]
) -> None:
    source.load("tasks", task, "size")  # with all that it imports
    began = time.thread_time()
    for strategy in ("tensor_parallel", "data_parallel"):  # the first looks at it in the server
        with pytest.raises(Refused, match=r"would hold (more than )?[\d,.]+ GB of model"):
            runs.start(lenet(strategy=strategy, task=task, task_options=options), "me")
    assert time.thread_time() - began < 1


def test_a_model_s_size_is_what_it_holds() -> None:
    models = [("char_transformer", {"layers": 3, "width": 32}), ("mlp_layers", {"layers": 3})]
    for name, options in models:
        task = source.load("tasks", name, "Task")(**options)
        held_numbers = sum(one.numel() for one in task.model().parameters())
        if name == "mlp_layers":
            held_numbers += sum(one.numel() for one in task.dataset("train").tensors)
        size = source.load("tasks", name, "size")(**options)
        assert 0.9 * held_numbers < size <= held_numbers


def test_what_a_task_cannot_be_made_of_is_said_in_words(runs: Runs) -> None:
    for options in ({"layers": 0}, {"layers": "x"}, {"width": [1]}):
        with pytest.raises(wb.WorkbenchError, match=r"layers|width|could not start"):
            runs.start(
                lenet(strategy="tensor_parallel", task="mlp_layers", task_options=options), "me"
            )
    assert not runs.live and runs._starting == 0


def test_too_many_threads_are_refused(runs: Runs) -> None:
    with pytest.raises(Refused, match=r"up to 64 threads, and this one asks for 2 x 1,000"):
        runs.start(lenet(ranks=2, threads=1000), "me")


def test_too_many_rows_end_a_run(clock: Clock) -> None:
    runs = held(clock, rows=300)
    hosted = runs.start(lenet(iterations=LONG), "me")
    runs.enter(hosted, Page())
    until(lambda: len(hosted.run.store) > 300, 30, "rows")
    later(runs, clock, WEIGH)
    assert "rows, and 300 are the most here, so its ranks were ended." in hosted.words
    ended(hosted)


def test_memory_counts_what_ranks_share_once(runs: Runs) -> None:
    hosted = runs.start(lenet(ranks=3, iterations=LONG), "me")
    training(hosted.run)
    pids = hosted.run.pids.values()
    whole, bound = weighed(pids), weighed(pids, enough=10**12)
    assert 3_000_000 < whole < bound * 0.7, "three ranks share torch, which counts three times"


def test_so_many_ranks_and_runs_and_no_more(clock: Clock) -> None:
    runs = held(clock, ranks=3, runs=2)
    try:
        with pytest.raises(Refused, match=r"a run up to 3 ranks, and this one asks for 4"):
            runs.start(lenet(ranks=4), "me")
        first = runs.start(lenet(iterations=LONG), "me")
        runs.start(lenet(iterations=LONG), "you")
        with pytest.raises(Refused, match=r"runs 2 runs at a time.*One of them is yours") as error:
            runs.start(lenet(), "me")
        assert "--max-runs" in str(error.value)
        with pytest.raises(Refused) as error:
            runs.start(lenet(), "a visitor")
        assert "yours" not in str(error.value)
        first.run.stop()
        first.run.wait(120)
        third = runs.start(lenet(), "me")
        assert third.run.wait(120).ok
    finally:
        stop(runs)


def test_two_that_start_at_once_do_not_both_get_the_last_place(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long a run takes to be put on the list, it has its place from its first moment."""
    runs = held(clock, runs=1)
    add, began = History.add, threading.Event()

    def slowly(*args: Any, **how: Any) -> Any:
        began.set()
        time.sleep(0.3)
        return add(*args, **how)

    monkeypatch.setattr(History, "add", slowly)
    entering = threading.Thread(target=lambda: runs.start(lenet(iterations=LONG), "me"))
    entering.start()
    try:
        assert began.wait(60)
        while entering.is_alive():
            with pytest.raises(Refused, match="runs 1 run at a time"):
                runs.start(lenet(), "you")
        assert len(runs.live) == 1
    finally:
        entering.join()
        stop(runs)


def test_a_run_that_cannot_start_leaves_its_place_free(clock: Clock) -> None:
    runs = held(clock, runs=1, ranks=200)
    with pytest.raises(wb.SpecError, match="no layer of the model that can be split over 130"):
        runs.start(lenet(strategy="tensor_parallel", ranks=130), "me")
    assert runs.start(lenet(), "me").run.wait(120).ok


def test_code_is_refused_in_words(runs: Runs) -> None:
    class Mine:
        def model(self) -> None: ...

    path = wb.Experiment(task=f"{__file__}:Clock")
    for exp in (path, wb.Experiment(task=Mine)):
        with pytest.raises(Refused, match="data, never code, and this one carries code in task"):
            runs.start(exp, "me")
    assert runs.live == []


def test_a_run_is_found_by_words_that_cannot_be_guessed(runs: Runs) -> None:
    hosted = runs.start(lenet(), "me")
    assert runs.find(hosted.id) is runs.find_watched(hosted.watch) is hosted
    assert runs.find(hosted.watch) is None, "a visitor who may watch has not got the run"
    assert runs.find_watched(hosted.id) is None
    assert runs.find("1") is runs.find("") is None
    assert min(len(hosted.id), len(hosted.watch)) >= 22, "128 bits"
    hosted.run.wait(120)
    assert runs.find(hosted.id) is hosted, "what is over can be looked at again"


def test_past_runs_are_their_owners_and_are_forgotten_in_the_end(runs: Runs, clock: Clock) -> None:
    mine, yours = runs.start(lenet(), "me", "A title"), runs.start(lenet(), "you")
    for hosted in (mine, yours):
        hosted.run.wait(120)
    assert [past.title for past in runs.history("me")] == ["A title"]
    assert [past.id for past in runs.history("you")] == [yours.id]
    runs.visit("you", Page())  # this page stays open
    later(runs, clock, FORGET + 1)
    assert runs.find(mine.id) is runs.find_watched(mine.watch) is None
    assert list(runs.history("me")) == []
    assert runs.find(yours.id) is yours


def test_a_full_history_lets_go_of_its_oldest_events(runs: Runs, clock: Clock) -> None:
    older, newer = runs.start(lenet(), "me"), runs.start(lenet(), "me")
    for hosted in (older, newer):
        hosted.run.wait(120)
    runs.history("me")._keep_rows = 1
    later(runs, clock, WEIGH)
    assert older.run is None and newer.run is not None
    assert len(newer.run.store) and not newer.run.store._in_memory, "its rows are in a file"
    assert newer.run.events.height == len(newer.run.store)
    assert older.past.summary()["state"] == "finished", "its figures stay"
    later(runs, clock, WEIGH)


def test_of_many_runs_the_newest_keep_their_events(
    runs: Runs, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all owners together: what they hold in memory and in temporary folders has a bound."""
    monkeypatch.setattr(server_runs, "KEEP_RUNS", 2)
    hosts = [runs.start(lenet(ranks=1, iterations=1), f"visitor {n}") for n in range(4)]
    shown = hosts[0]
    runs.enter(shown, Page())
    folders = []
    for hosted in hosts:
        hosted.run.wait(120)
        hosted.run.store.put_away()
        folders.append(hosted.run.store._folder)
    later(runs, clock, WEIGH)
    assert [hosted.run is not None for hosted in hosts] == [True, False, False, True]
    gc.collect()
    assert [folder.exists() for folder in folders] == [True, False, False, True]
    assert all(hosted.past.summary()["state"] == "finished" for hosted in hosts)


def test_one_bad_run_keeps_no_other_alive(
    runs: Runs, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, good = runs.start(lenet(iterations=LONG), "me"), runs.start(lenet(iterations=LONG), "me")
    end = bad.run.stop
    bad.run.stop = lambda: 1 / 0  # a fault of ours, in the one that is looked at first
    later(runs, clock, GRACE)
    assert "ZeroDivisionError" in capsys.readouterr().err
    ended(good)
    bad.run.stop = end
