"""What the stage draws of every operation, from real calls: every file of the folder, with no edit.

One run of eight ranks makes a call of each, over all eight and over five of them. The page's replay
(holdings.js) then says which cells are solid, and in which shape the ranks talk (shape.js).
"""

from __future__ import annotations

import base64
import json
import subprocess
from typing import Any

import pytest
import torch.distributed as dist

import workbench as wb
from tests.collectives.cases import FILES, large
from tests.collectives.ranks import run_one
from tests.live import ROOT
from tests.processes import values
from tests.views.test_holdings import node
from workbench.recording.events import KINDS
from workbench.store.table import Names, from_frame
from workbench.views.packing import pack

RANKS = (5, 8)
SHAPES = {
    "tree": "tree",
    "flat": "star",
    "naive": "star",
    "ring": "circle",
    "butterfly": "cube",
    "rabenseifner": "cube",
    "recursive_doubling": "cube",
    "dissemination": "circle",
    "pairwise": "circle",
    "one_shot": "circle",
    "all_to_all": "circle",
}


def every_file(rank: int, size: int) -> None:
    groups = {n: dist.new_group([*range(n)]) for n in RANKS}
    for n, group in groups.items():
        if rank < n:
            for operation, name in FILES:
                run_one(group, operation, name, large(operation, n))
    dist.barrier()


@pytest.fixture(scope="module")
def every_call(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("operations")
    trace = folder / "trace"
    env = {"WORKBENCH_TRACE": str(trace), "WORKBENCH_CHUNK": "4096"}
    values(every_file, max(RANKS), env=env, timeout=60.0)
    events = wb.load(trace).events.sort("rank", "lane", maintain_order=True)
    names, origin = Names(), int(events["start_ns"].min())  # type: ignore[arg-type]
    header, block = pack(from_frame(events, names.number), origin)
    header |= {"kinds": KINDS, "strings": {"first": 0, "texts": names.since(0)}}
    file = folder / "table.json"
    file.write_text(json.dumps({"header": header, "bytes": base64.b64encode(block).decode()}))
    script = ROOT / "tests" / "js" / "operations_truth.mjs"
    done = subprocess.run([node(), script, file], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    calls: list[dict[str, Any]] = json.loads(done.stdout)
    return [call for call in calls if call["algorithm"]]


@pytest.mark.parametrize("n", RANKS)
@pytest.mark.parametrize(("operation", "name"), FILES)
def test_cells_are_solid_where_a_rank_holds_what_it_must(
    every_call: list[dict[str, Any]], operation: str, name: str, n: int
) -> None:
    calls = [
        call
        for call in every_call
        if (call["operation"], call["algorithm"]) == (operation, name)
        and call["ranks"] == [*range(n)]
    ]
    assert calls, "it was run and is not on the page"
    for call in calls:
        assert call["judged"] and call["sound"] and call["wrong"] == []
        assert call["first"] < call["asked"], "there was something to do"
        if operation in ("broadcast", "reduce", "gather", "scatter"):
            assert call["root"] == n - 1
        if name in SHAPES and n == 8:
            assert call["shape"] == SHAPES[name]
        if name == "hierarchical":
            assert call["shape"] == ("groups" if n == 8 else "circle")
