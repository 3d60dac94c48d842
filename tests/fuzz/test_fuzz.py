"""A sample of what ``python -m tools.fuzz`` tries without end."""

from __future__ import annotations

import random
import shutil
import stat
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import workbench as wb
from tests.live import LONG, crowding, lenet, over_in_the_end, training
from tools.fuzz import crafted, messages, saved_runs, traces
from tools.fuzz.cases import FAMILIES
from tools.fuzz.family import Family
from tools.fuzz.made_up import damaged
from workbench.common.errors import SpecError
from workbench.interface import form

CASES = min(100, 2 * settings.default.max_examples)  # 100 under `make test-all`


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_made_up_is_refused_in_words_or_right(family: str) -> None:
    one = FAMILIES[family]
    for seed in range(CASES):
        try:
            one.judge(one.make(random.Random(seed)))
        except Exception as error:
            raise AssertionError(f"{family}, seed {seed}") from error


def test_a_saved_run_that_was_damaged_is_refused_or_whole(tmp_path: Path) -> None:
    path = saved_runs.run(tmp_path)
    whole, opener, outcomes = path.read_bytes(), saved_runs.Opener(), Counter[str]()
    try:
        right = opener.use(path)
        assert "read" in right
        for seed in range(CASES):
            changed = damaged(whole, random.Random(seed))
            outcome = opener.use_bytes(changed, tmp_path)
            assert "refused" in outcome or outcome == right, (seed, outcome)
            assert outcome != right or changed == whole, seed
            outcomes.update(outcome.keys())
        assert outcomes["refused"] > CASES // 2, outcomes
        for seed in range(CASES):
            outcome = opener.use_bytes(saved_runs.made_by_hand(random.Random(seed)), tmp_path)
            assert outcome.keys() <= {"read", "refused"}, (seed, outcome)
            outcomes[f"{[*outcome]} by hand"] += 1
        assert min(outcomes[f"['{one}'] by hand"] for one in ("read", "refused")) > CASES // 10
    finally:
        opener.close()


@pytest.fixture(scope="module")
def crafted_families() -> Iterator[dict[str, Family]]:
    with crafted.families() as by_name:
        yield by_name


@pytest.mark.parametrize("family", crafted.NAMES)
def test_what_a_stranger_hands_in_costs_little_and_gets_a_sentence(
    crafted_families: dict[str, Family], family: str
) -> None:
    """``python -m tools.fuzz crafted_recording ... --cases 250`` judges a thousand."""
    for seed in range(CASES // 5):
        one = crafted_families[family]
        try:
            one.judge(one.make(random.Random(seed)))
        except AssertionError as error:
            raise AssertionError(f"{family}, seed {seed}") from error


@pytest.mark.parametrize(
    "fields",
    [
        {"strategy": "ape_x", "task": "gymnasium_game", "task_options": "hidden: [30000, 30000]"},
        {"strategy": "ape_x", "task": "gymnasium_game", "task_options": "hidden: [10000, 9000]"},
        {"strategy": "tensor_parallel", "task": "mlp_layers", "task_options": "width: 15000"},
        {"strategy": "tensor_parallel", "task": "mlp_layers", "task_options": "samples: 9000000"},
        {"strategy": "tensor_parallel", "task": "video_tags", "task_options": "samples: 400000"},
        {"chunk_bytes": "9" * 4_000},
    ],
)
def test_a_visitor_s_numbers_build_nothing_in_the_server(
    crafted_families: dict[str, Family], fields: dict[str, str]
) -> None:
    values = form.values(wb.Experiment()) | {"ranks": 2} | fields
    crafted_families["crafted_form"].judge(values)


@pytest.mark.full
def test_a_trace_folder_that_was_spoiled_is_read_as_far_as_it_is_whole(tmp_path: Path) -> None:
    whole = traces.trace(tmp_path / "whole")
    for seed in range(CASES // 2):
        folder = Path(shutil.copytree(whole, tmp_path / f"{seed}"))
        traces.spoil(folder, traces.deed(whole, random.Random(seed)))
        try:
            traces.read_and_follow(folder)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
        shutil.rmtree(folder)
    assert stat.S_ISDIR(whole.stat().st_mode)


@pytest.mark.parametrize("readonly", [False, True])
def test_a_page_may_say_what_it_likes(live: wb.Run, readonly: bool) -> None:
    listener = messages.Listener(live, readonly=readonly)
    ids = []
    for seed in range(2 * CASES):
        message = messages.message(random.Random(seed))
        ids += [message["id"]] if messages.is_answered(message) else []
        listener.page.hear(message)
        # A page may have 100 commands waiting; what it asks beyond that is refused.
        least = len(ids) - 50
        listener.until(lambda least=least: len(listener.answers) > least)
    listener.until(lambda: len(listener.answers) >= len(ids))
    assert [answer["id"] for answer in listener.answers] == ids  # each once, in order
    assert all(answer["words"] and isinstance(answer["ok"], bool) for answer in listener.answers)
    done = sum(answer["ok"] for answer in listener.answers)
    assert done == 0 if readonly else 2 * CASES > done > CASES // 2, done
    before = listener.batches
    listener.page.hear({"type": "hello", "token": "again"})
    listener.until(lambda: listener.batches > before)
    listener.page.leave()


@pytest.fixture(scope="module")
def live() -> Iterator[wb.Run]:
    """A run that goes on after all of it, and then ends in good order."""
    run = wb.run(lenet(iterations=LONG))
    with over_in_the_end(run):
        yield training(run)
        run.stop()
        assert run.wait(60, check=False).ok, run.result.error


def test_a_short_text_that_would_never_end_is_refused_at_once() -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    began = time.monotonic()
    for text, reason in (
        ("\n".join(lines) + "\noptions: *a11\n", "comes to .* values once its aliases"),
        ("options: &a {a: *a}\n", "comes to .* values once its aliases"),
        ("options: " + "[" * 20_000 + "\n", "nested too deeply"),
        ("seed: " + "9" * 6000 + "\n", "a number of 6,000 characters"),
        ("lr: 2001-99-99\n", "not YAML"),
        ("x" * 5000, "not the YAML of an experiment"),
    ):
        with pytest.raises(SpecError, match=reason):
            wb.Experiment.from_yaml(text)
    assert time.monotonic() - began < 30 * crowding()
