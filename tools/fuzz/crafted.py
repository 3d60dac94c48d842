"""What a stranger hands in, at what cost: a recording, a checkpoint, a form, a link.

Each is read, or refused in a sentence, in a second of processor time and 50 MB.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.fuzz import checkpoints, prices, recordings, saved_runs
from tools.fuzz.family import Family
from tools.fuzz.made_up import json_text
from workbench.experiment.spec import Experiment
from workbench.interface import form

MOST_SECONDS, MOST_MEGABYTES, LONGEST = 1.0, 50.0, 3_000
NAMES = ("crafted_recording", "crafted_checkpoint", "crafted_form", "crafted_link")
# Strategies whose driver looks at the model, with tasks and sizes that a visitor can name.
LOOKS = (
    ("tensor_parallel", "mlp_layers", ("layers", "width", "unused", "samples")),
    ("tensor_parallel", "char_transformer", ("layers", "width", "heads", "context")),
    ("tensor_parallel", "video_tags", ("samples", "noise")),
    ("ape_x", "gymnasium_game", ("hidden",)),
    ("gorila", "catch", ("rows", "channels", "hidden")),
    ("sequential", "gymnasium_game", ("hidden", "id")),
    ("fsdp", "char_transformer", ("layers", "width")),
)
SIZES = (1, 2, 16, 64, 100, 1_000, 6_000, 30_000, 10**6, 10**9, 10**12, 2**63, -1, "x", None)


def sizes(chance: random.Random) -> dict[str, Any]:
    """An experiment of any size, of those at whose model the driver looks."""
    strategy, task, names = chance.choice(LOOKS)
    options: dict[str, Any] = {}
    for name in chance.sample(names, chance.randrange(1, len(names) + 1)):
        size = chance.choice(SIZES)
        options[name] = [size] * chance.choice((1, 2, 12, 900)) if name == "hidden" else size
    ranks = chance.choice((1, 2, 4, 16))
    return {"strategy": strategy, "task": task, "task_options": options, "ranks": ranks}


def values(chance: random.Random) -> dict[str, Any]:
    """The fields of a form."""
    if chance.random() < 0.4:
        return dict(prices.values(chance)["values"])
    spec = sizes(chance)
    written = ", ".join(f"{name}: {value}" for name, value in spec["task_options"].items())
    result = form.values(Experiment()) | spec | {"task_options": written.replace("None", "null")}
    if chance.random() < 0.3:
        name = chance.choice(("ranks", "chunk_bytes", "threads", "batch_size", "iterations"))
        result[name] = "9" * chance.choice((3, 30, 300, 4_000))
    return result


def link(chance: random.Random) -> str:
    """A link to an experiment."""
    if chance.random() < 0.4:
        return str(prices.link(chance)["link"])
    return prices.packed(sizes(chance))


@contextlib.contextmanager
def families() -> Iterator[dict[str, Family]]:
    """Judged by a process of their own, that has imported what it needs."""
    opener = saved_runs.Opener()
    worst = dict.fromkeys(NAMES, (0.0, 0.0))

    def judge(family: str, use: str, what: Any) -> None:
        reply = opener.ask(use, what)
        answer, seconds, megabytes = reply["answer"], reply["seconds"], reply["megabytes"]
        assert answer.keys() <= {"read", "refused"}, answer
        words = answer.get("refused", "-")
        assert words.strip() and len(words) <= LONGEST and "Traceback" not in words, answer
        most = worst[family]
        worst[family] = max(most[0], seconds), max(most[1], megabytes)
        assert seconds <= MOST_SECONDS and megabytes <= MOST_MEGABYTES, (seconds, megabytes, answer)

    with tempfile.TemporaryDirectory(prefix="workbench-fuzz-") as name:
        place = Path(name)

        def judge_recording(case: recordings.Case) -> None:
            path = place / case[0]
            path.write_bytes(case[1])
            try:
                judge("crafted_recording", "recording", str(path))
            finally:
                path.unlink()

        def judge_checkpoint(case: checkpoints.Case) -> None:
            folder = place / "checkpoints"
            try:
                judge("crafted_checkpoint", "checkpoint", checkpoints.write(case, folder))
            finally:
                shutil.rmtree(folder)

        try:
            _warm(opener, place)
            yield {
                "crafted_recording": Family(recordings.recording, judge_recording),
                "crafted_checkpoint": Family(checkpoints.checkpoint, judge_checkpoint),
                "crafted_form": Family(values, lambda case: judge("crafted_form", "form", case)),
                "crafted_link": Family(link, lambda case: judge("crafted_link", "link", case)),
            }
            for family, (seconds, megabytes) in worst.items():
                print(f"{family:24} at the most {seconds:.2f} s, {megabytes:.0f} MB")
        finally:
            opener.close()


def _warm(opener: saved_runs.Opener, place: Path) -> None:
    """Have everything imported that a server has used before."""
    for name, make in recordings.TEXTS.items():
        path = place / name
        path.write_bytes(json_text(make(random.Random(0)), recordings.LONGEST))
        assert "read" in opener.ask("recording", str(path))["answer"], name
        path.unlink()
    for strategy, task, _ in LOOKS:
        fields = form.values(Experiment()) | {"strategy": strategy, "task": task}
        for use, what in (("form", fields), ("link", prices.packed({"strategy": strategy}))):
            opener.ask(use, what)
    folder = place / "checkpoints"
    opener.ask("checkpoint", checkpoints.write(checkpoints.checkpoint(random.Random(0)), folder))
    shutil.rmtree(folder)
