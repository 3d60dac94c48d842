"""The page's replay of whose parts are where (holdings.js) against theory/provenance.py, on real
runs.

The tables are packed as a page gets them; node unpacks them and says every change. Besides our own
algorithms: one that the workbench has never seen, and two that are wrong on purpose.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
import torch.distributed as dist

import workbench as wb
from tests.laws.simulator import PROGRAMS, simulate
from tests.live import ROOT, lenet, training, until
from tests.pairwise import first
from tests.processes import values
from workbench.laws import contributors
from workbench.recording.events import KINDS
from workbench.store.table import Names, from_frame
from workbench.views.packing import pack

OURS = ("ring", "naive", "one_shot")


def recursive_doubling(comm: Any, x: torch.Tensor) -> None:
    """Unknown to the workbench: each rank swaps all it has with its partner at distance 1, 2, 4."""
    distance, step = 1, 0
    while distance < comm.size:
        peer = comm.rank ^ distance
        comm.exchange(x, to=peer, into=x, frm=peer, reduce="SUM", step=step, chunk=0)
        distance, step = 2 * distance, step + 1


def forgetful_ring(comm: Any, x: torch.Tensor) -> None:
    """A ring in which chunk 1 is not sent at step 1, so that its sum never gets what it had."""
    p, me = comm.size, comm.rank
    chunks, left, right = comm.split(x), (me - 1) % p, (me + 1) % p
    for step in range(2 * (p - 1)):
        give, take = (me - step) % p, (me - step - 1) % p
        if (step, give) != (1, 1):
            comm.send(chunks[give], to=right, step=step, chunk=give)
        if (step, take) != (1, 1):
            reduce = "SUM" if step < p - 1 else None
            comm.recv(chunks[take], frm=left, reduce=reduce, step=step, chunk=take)


def greedy_star(comm: Any, x: torch.Tensor) -> None:
    """A star whose rank 2 counts itself twice."""
    p, me = comm.size, comm.rank
    if me == 2:
        comm.combine(x, x.clone(), "SUM", chunk=0)
    if me == 0:
        for peer in range(1, p):
            comm.recv(x, frm=peer, reduce="SUM", step=peer - 1, chunk=0)
        for peer in range(1, p):
            comm.send(x, to=peer, step=p - 2 + peer, chunk=0)
    else:
        comm.send(x, to=0, step=me - 1, chunk=0)
        comm.recv(x, frm=0, step=p - 2 + me, chunk=0)


def node() -> str:
    """Return where node is. There being none is a failure, never a skip."""
    if path := shutil.which("node"):
        return path
    pytest.fail(
        "the page's replay is tested with node 20 or newer, and there is none on PATH: "
        "`apt-get install nodejs`, or https://nodejs.org",
        pytrace=False,
    )


def said_by_the_page(
    tables: list[tuple[pl.DataFrame, int, str]], folder: Path
) -> list[dict[str, Any]]:
    """Return what holdings.js makes of each (events, op, group)."""
    questions = []
    for events, op, group in tables:
        names, origin = Names(), int(events["start_ns"].min())  # type: ignore[arg-type]
        header, block = pack(from_frame(events, names.number), origin)
        header |= {"kinds": KINDS, "strings": {"first": 0, "texts": names.since(0)}}
        questions.append(
            {"header": header, "bytes": base64.b64encode(block).decode(), "op": op, "group": group}
        )
    file = folder / "tables.json"
    file.write_text(json.dumps(questions))
    script = ROOT / "tests" / "js" / "holdings_truth.mjs"
    done = subprocess.run([node(), script, file], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


Changes = dict[tuple[int, int, int], list[tuple[int, list[int]]]]


def python_says(events: pl.DataFrame, op: int, group: str) -> tuple[Changes, Changes]:
    """Of each (rank, chunk, slot): what it begins with, and its changes as (time, contributors)."""
    origin = int(events["start_ns"].min())  # type: ignore[arg-type]
    frames = contributors(events, op, group)
    begins: Changes = defaultdict(list)
    changes: Changes = defaultdict(list)
    cells = set()
    for time, rank, chunk, slot, counts in frames.rows():
        cell = rank, chunk, slot
        (changes if cell in cells else begins)[cell].append((time - origin, counts))
        cells.add(cell)
    return begins, changes


def page_says(answer: dict[str, Any]) -> Changes:
    changes: Changes = defaultdict(list)
    for change in answer["changes"]:
        cell = change["rank"], change["chunk"], change["slot"]
        changes[cell].append((change["time"], change["counts"]))
    return changes


def check(tables: list[tuple[pl.DataFrame, int, str]], folder: Path) -> list[dict[str, Any]]:
    """Both say the same of every change, and of the end. Returns what the page says."""
    answers = said_by_the_page(tables, folder)
    for (events, op, group), page in zip(tables, answers, strict=True):
        begins, changes = python_says(events, op, group)
        assert page_says(page) == changes, (op, group)
        end = {cell: (changes.get(cell) or begins[cell])[-1][1] for cell in begins}
        for cell in page["cells"]:
            pieces = [c for at, c in end.items() if at[:2] == (cell["rank"], cell["chunk"])]
            n = range(len(page["ranks"]))
            assert cell["slots"] == len(pieces)
            assert cell["within"] == [sum(c[i] > 0 for c in pieces) for i in n]
            assert cell["doubled"] == [page["ranks"][i] for i in n if any(c[i] > 1 for c in pieces)]
            assert cell["lacking"] == [page["ranks"][i] for i in n if any(c[i] < 1 for c in pieces)]
            assert cell["complete"] == all(count == 1 for c in pieces for count in c)
    return answers


def calls(events: pl.DataFrame) -> list[tuple[pl.DataFrame, int, str]]:
    """The run's first two gradient all-reduces."""
    outer = events.filter(
        pl.col("kind") == "collective", pl.col("group") == "default", pl.col("op") >= 0
    )
    ops = outer.filter(pl.col("nbytes") == outer["nbytes"].max())["op"].unique().sort().to_list()
    return [(events.filter(pl.col("group") == "default"), op, "default") for op in ops[:2]]


def trained(algorithm: Any) -> list[tuple[pl.DataFrame, int, str]]:
    run = wb.run(lenet(ranks=4, iterations=2, all_reduce=algorithm))
    run.wait()
    return calls(run.events)


@pytest.mark.parametrize("algorithm", first(1, OURS))
def test_our_algorithms(algorithm: str, tmp_path: Path) -> None:
    for page in check(trained(algorithm), tmp_path):
        assert page["ranks"] == [0, 1, 2, 3] and page["changes"]
        assert all(cell["complete"] for cell in page["cells"])


def test_an_unknown_algorithm(tmp_path: Path) -> None:
    for page in check(trained(recursive_doubling), tmp_path):
        assert all(cell["complete"] for cell in page["cells"])
        first = min(page["changes"], key=lambda change: change["time"])
        assert first["counts"] in ([1, 1, 0, 0], [0, 0, 1, 1])  # pairs first


def test_a_chunk_that_was_not_sent_lacks_what_it_held(tmp_path: Path) -> None:
    for page in check(trained(forgetful_ring), tmp_path):
        for cell in page["cells"]:
            # Chunk 1 starts on rank 1; what rank 2 had summed at step 0 stays there.
            assert cell["lacking"] == ([1, 2] if cell["chunk"] == 1 else []), cell
            assert cell["doubled"] == []


def test_a_part_that_is_in_twice_is_doubled(tmp_path: Path) -> None:
    for page in check(trained(greedy_star), tmp_path):
        assert all((cell["doubled"], cell["lacking"]) == ([2], []) for cell in page["cells"])


def _groups_and_slots(rank: int, n: int) -> None:
    from workbench.process_group.session import session

    some = dist.new_group([0, 2, 3])
    for algorithm in OURS:
        session().all_reduce = algorithm
        dist.all_reduce(torch.ones(4097))
        if rank != 1:
            dist.all_reduce(torch.ones(1000), group=some)


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    """Calls of several slots a chunk, over all ranks and over some."""
    folder = tmp_path_factory.mktemp("trace")
    values(_groups_and_slots, 4, env={"WORKBENCH_TRACE": str(folder), "WORKBENCH_CHUNK": "512"})
    return wb.load(folder).events


def of_every_group(events: pl.DataFrame) -> list[tuple[pl.DataFrame, int, str]]:
    chunks = events.filter(pl.col("kind") == "send", pl.col("collective") == "all_reduce")
    of = chunks.select("group", "op").unique().sort("group", "op")
    return [(events, op, group) for group, op in of.rows()]


def test_several_slots_and_groups(traced: pl.DataFrame, tmp_path: Path) -> None:
    tables = of_every_group(traced)
    assert len(tables) == 6
    answers = check(tables, tmp_path)
    assert (
        sorted(map(str, (page["ranks"] for page in answers)))
        == ["[0, 1, 2, 3]"] * 3 + ["[0, 2, 3]"] * 3
    )
    assert max(cell["slots"] for page in answers for cell in page["cells"]) > 2


@pytest.mark.parametrize("kind", first(1, ["send", "recv"]))
def test_a_row_that_is_missing_or_there_twice_shows_in_its_slot(
    traced: pl.DataFrame, kind: str, tmp_path: Path
) -> None:
    tables, rows = [], []
    for events, op, group in of_every_group(traced):
        mine = events.with_row_index("index").filter(
            pl.col("kind") == kind, pl.col("op") == op, pl.col("group") == group
        )
        for row in mine.sample(4, seed=op).rows(named=True):
            at = pl.int_range(pl.len()) != row["index"]
            again = pl.concat([events.head(row["index"] + 1), events.slice(row["index"])])
            tables += [(events.filter(at), op, group), (again, op, group)]
            rows += [row, row]
    answers = check(tables, tmp_path)
    for number, (page, row) in enumerate(zip(answers, rows, strict=True)):
        wrong = [cell for cell in page["cells"] if not cell["complete"]]
        assert all(cell["chunk"] == row["chunk"] for cell in wrong)
        if number % 2 == 0 and kind == "recv":
            assert any(cell["lacking"] for cell in wrong) or row["name"] != "fused"
        if number % 2 and kind == "recv" and row["name"] == "fused":
            assert any(cell["doubled"] for cell in wrong)


def test_however_the_ranks_are_delayed(tmp_path: Path) -> None:
    """Programs of the laws' simulator: exchanges, relays, additions; each also less a row."""
    tables = []
    for seed, name in enumerate(4 * sorted(PROGRAMS)):
        whole = simulate(name, 2 + seed % 5, 40, slots=1 + seed % 3, seed=seed)
        gone = whole.with_row_index("index").filter(pl.col("kind") != "collective")
        less = whole.filter(pl.int_range(pl.len()) != gone.sample(1, seed=seed)["index"][0])
        tables += [(whole, 0, "default"), (less, 0, "default")]
    answers = check(tables, tmp_path)
    assert all(cell["complete"] for page in answers[::2] for cell in page["cells"])
    assert any(cell["lacking"] for page in answers[1::2] for cell in page["cells"])


def test_held_ranks_say_the_first_values_of_what_they_hold() -> None:
    """What a page shows under the pointer while the user holds the ranks."""
    run = wb.run(lenet(ranks=2, iterations=100_000, all_reduce="ring"))
    try:
        training(run, 2)
        run.pause()
        held_rows: dict[int, dict[str, Any]] = {}

        def both() -> bool:  # step by step; where one stands at a gate, the other may wait for it
            held = run.store.now.filter(pl.col("kind") == "send", pl.col("values").list.len() > 0)
            held_rows.update({row["rank"]: row for row in held.rows(named=True)})
            if len(held_rows) < 2 and run.held:
                run.step()
            return len(held_rows) == 2

        until(both, 30, "each rank has said what it holds")
        for row in held_rows.values():
            (length,) = json.loads(row["shape"].replace("(", "[").replace(",)", "]"))
            assert row["dtype"] == "float32" and row["chunk"] in (0, 1) and row["op"] >= 0
            assert len(row["values"]) == min(8, length)
            assert all(abs(value) < 1e6 for value in row["values"])
    finally:
        run.resume()
        run.stop()
        assert run.wait(timeout=90).ok
