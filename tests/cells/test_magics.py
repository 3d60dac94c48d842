"""``%%ranks`` in a real kernel, as JupyterLab and nbval run it."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.error import UsageError

from tests import notebook_files
from tests.kernel import Kernel, started
from tests.live import gone, until
from tests.processes import command
from workbench.cells.magics import Request, parse

WIDGET, PICTURE = "application/vnd.jupyter.widget-view+json", "image/svg+xml"
PIDS = "import os\nprint('pid', os.getpid())"


class Notebook:
    """Cells of one kernel, one after the other."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.run("%load_ext workbench")

    def start(self, code: str) -> str:
        return str(self.kernel.client.execute(code))

    def run(self, code: str, seconds: float = 60) -> list[dict[str, Any]]:
        """Return what the cell put out, once it is over."""
        return self.end(self.start(code), seconds)

    def end(self, cell: str, seconds: float = 60) -> list[dict[str, Any]]:
        def idle(m: dict[str, Any]) -> bool:
            state = m["content"].get("execution_state")
            return state == "idle" and m["parent_header"].get("msg_id") == cell

        self.kernel.until(idle, seconds, "the cell's end")
        return [m for m in self.kernel.got if m["parent_header"].get("msg_id") == cell]


def printed(messages: list[dict[str, Any]], stream: str = "stdout") -> str:
    streams = [m["content"] for m in messages if m["msg_type"] == "stream"]
    return "".join(one["text"] for one in streams if one["name"] == stream)


def error(messages: list[dict[str, Any]]) -> str:
    errors = [m["content"] for m in messages if m["msg_type"] == "error"]
    return "\n".join(f"{one['ename']}\n" + "\n".join(one["traceback"]) for one in errors)


def displays(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [m for m in messages if "display_data" in m["msg_type"]]


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    with started(tmp_path, monkeypatch) as kernel:
        yield Notebook(kernel)


def test_cells_run_on_ranks_below_one_stage(notebook: Notebook) -> None:
    first = notebook.run("%%ranks 4\nx = torch.full((9,), float(rank))\ndist.all_reduce(x)\nx[0]")
    assert printed(first) == "[ranks 0-3] tensor(6.)\n" and error(first) == ""
    shown = displays(first)
    assert [m["msg_type"] for m in shown] == ["display_data", "update_display_data"]
    for m in shown:
        assert WIDGET in m["content"]["data"]
        assert m["content"]["data"]["text/plain"] == "Ranks(4)"
    assert "4 ranks ran 1 cell and sent" in shown[-1]["content"]["data"][PICTURE]

    second = notebook.run("%%ranks 0,2\nprint('here')\nrank + x[0].item()")
    assert sorted(printed(second).splitlines()) == [
        "[rank 0] 6.0",
        "[rank 0] here",
        "[rank 2] 8.0",
        "[rank 2] here",
    ]
    again = displays(second)  # the same stage, where it is; no second one
    assert [m["msg_type"] for m in again] == ["update_display_data"]
    assert again[0]["content"]["transient"] == shown[0]["content"]["transient"]

    failed = notebook.run("y = 1\nimport math")
    failed = notebook.run("%%ranks\n\nmath.pi / rank")
    # All four in one block, unless busy cores kept one of them back for longer than is waited.
    assert re.search(r'^\[ranks? [-0-9, ]+\]   File "cell ', printed(failed, "stderr"), re.M)
    assert ", line 3, in <module>" in printed(failed, "stderr")  # as the notebook counts them
    assert "math is a variable of the notebook; the ranks have their own" in printed(
        failed, "stderr"
    )
    assert error(failed).startswith("CellError\nCellError: ranks 0-3 raised; rank 0, line 3: Name")
    assert "Traceback" not in error(failed)  # it is above, by rank

    assert re.fullmatch(
        r"4 ranks, 3 cells so far. Process group: workbench, generation 1\n"
        r"rank 0: process \d+\n(rank \d: process \d+\n){3}",
        printed(notebook.run("%ranks")),
    )
    assert "ended" in printed(notebook.run("%ranks --end"))
    refused = notebook.run("%%ranks\nrank")
    assert "there are no ranks yet: say how many" in printed(refused, "stderr") + error(refused)


@pytest.mark.full
def test_what_cannot_be_run_is_refused_in_a_sentence(notebook: Notebook) -> None:
    def fault(code: str) -> str:
        messages = notebook.run(code)
        return printed(messages, "stderr") + error(messages)

    assert "'four' does not name ranks" in fault("%%ranks four\nrank")
    assert "must be a whole number from 1 to 64" in fault("%%ranks 99\nrank")
    assert "line 2: '!ls' is for IPython; a %%ranks cell is plain Python" in fault("%%ranks 2\n!ls")
    assert "SyntaxError" in fault("%%ranks 2\ndef f(:\n    pass")
    assert "There are no ranks yet" in printed(notebook.run("%ranks"))  # nothing was started
    notebook.run("%%ranks 2\nkept = 1")
    assert "there are 2, numbered 0 to 1" in fault("%%ranks 0,3\nrank")
    assert "new ranks: the 2 before have ended" in fault("%%ranks 3\nrank")
    assert "NameError: name 'kept'" in fault("%%ranks\nkept")


@pytest.mark.full
def test_an_interrupt_ends_the_cell_and_the_ranks_live(notebook: Notebook) -> None:
    pids = re.findall(r"pid (\d+)", printed(notebook.run(f"%%ranks 2\nkept = rank\n{PIDS}")))
    cell = notebook.start("%%ranks\nx = torch.zeros(1)\ndist.recv(x, src=1 - rank)")
    deadlock = lambda m: "This is a deadlock" in m["content"].get("text", "")  # noqa: E731
    notebook.kernel.until(deadlock, 20, "the deadlock in words")
    os.kill(int(notebook.kernel.pid), 2)
    messages = notebook.end(cell)
    assert "interrupted at line 3: dist.recv(x, src=1 - rank)" in printed(messages, "stderr")
    assert "KeyboardInterrupt: the cell was interrupted; the ranks live" in error(messages)
    again = notebook.run(f"%%ranks\ndist.barrier()\n{PIDS}\nkept")
    assert sorted(re.findall(r"pid (\d+)", printed(again))) == sorted(pids)
    assert "[rank 1] 1" in printed(again)


@pytest.mark.full
def test_ranks_do_not_outlive_a_kernel_that_is_killed(notebook: Notebook) -> None:
    pids = re.findall(r"pid (\d+)", printed(notebook.run(f"%%ranks 2\n{PIDS}")))
    notebook.start("%%ranks\nwhile True: pass")
    time.sleep(0.3)
    os.kill(int(notebook.kernel.pid), 9)
    until(lambda: gone(map(int, pids)), 5, "the ranks are gone")
    assert len(pids) == 2


@pytest.mark.full
def test_a_notebook_with_cells_on_ranks_passes_nbval(tmp_path: Path) -> None:
    cells = [
        "%load_ext workbench",
        "%%ranks 2\ndist.all_reduce(x := torch.ones(3))\nx",
        "%ranks --end",
    ]
    notebook_files.write(tmp_path / "ranks.ipynb", cells)
    ended = command(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--nbval-lax",
            "--nbval-current-env",
            "--nbval-cell-timeout=60",
            str(tmp_path / "ranks.ipynb"),
        ],
        timeout=100,
    )
    assert ended.returncode == 0 and "3 passed" in ended.stdout, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("4", Request(size=4)),
        ("", Request()),
        ("0,2", Request(some=(0, 2))),
        (" 2, ", Request(some=(2,))),
        ("1-3", Request(some=(1, 2, 3))),
        ("0, 2-3 --no-stage", Request(some=(0, 2, 3), stage=False)),
        ("4 --bare", Request(size=4, bare=True)),
        ("--end", Request(end=True)),
        ("--timeout '5 s' 3", Request(size=3, timeout="5 s")),
        ("4 --as team --bare", Request(size=4, bare=True, name="team")),
        ("2 --timeout=20s", Request(size=2, timeout="20s")),
    ],
)
def test_what_stands_behind_the_magic_is_read(line: str, expected: Request) -> None:
    assert parse(line) == expected


@pytest.mark.parametrize("line", ["four", "-1", "4 --fast", "1-", "0;1", "4 4"])
def test_anything_else_is_refused(line: str) -> None:
    with pytest.raises(UsageError, match="does not name ranks"):
        parse(line)
