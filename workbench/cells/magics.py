"""``%%ranks``: a notebook's cell that runs on ranks, with the stage above what they print.

    %load_ext workbench

    %%ranks 4                    four ranks (fresh ones, if there were others before)
    %%ranks                      the same ranks as before
    %%ranks 0,2                  some of them; 2, is rank 2 alone, 1-3 are three of them
    %%ranks 4 --bare             the process group is yours to make
    %%ranks 4 --timeout '1 min'  how long a rank may wait without progress (default: 10 min)
    %%ranks 4 --no-stage         without the picture
    %%ranks 4 --as team          the notebook's variable ``team`` is these ranks (cells/team.py)

``rank``, ``world_size``, ``torch`` and ``dist`` are there; variables stay for the next cell.
``%ranks`` says how the ranks are, ``%ranks --end`` ends them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class

from workbench.cells import running
from workbench.cells.result import CellResult, label_lines, together
from workbench.cells.team import TIMEOUT, Ranks
from workbench.common.errors import WorkbenchError
from workbench.common.units import counted

_USAGE = (
    "%%ranks [4 | 0,2 | 1-3] [--bare] [--as NAME] [--timeout '10 min'] [--no-stage]; %ranks [--end]"
)
_ONE = re.compile(r"\d{1,3}")
_SOME = re.compile(r"\d{1,3}(-\d{1,3})?(\s*,\s*\d{1,3}(-\d{1,3})?)*\s*,?")


@dataclass(frozen=True)
class Request:
    """The arguments of ``%%ranks``: how many ranks, or which of them; neither: as before."""

    size: int | None = None
    some: tuple[int, ...] = ()
    bare: bool = False
    timeout: str = ""  # as before, or the usual one
    stage: bool = True
    end: bool = False
    name: str = ""  # of the notebook's variable


def parse(line: str) -> Request:
    """Parse the line of a magic. Raises UsageError, which lists what is allowed."""
    rest, options = line.strip(), dict[str, Any]()
    for flag, field, value in (
        ("bare", "bare", True),
        ("no-stage", "stage", False),
        ("end", "end", True),
    ):
        rest, result = re.subn(rf"(^|\s)--{flag}(?=\s|$)", " ", rest)
        if result:
            options[field] = value
    if match := re.search(r"(^|\s)--as[= ]\s*([^\W\d]\w*)", rest):
        options["name"] = match[2]
        rest = rest.replace(match[0], " ")
    if match := re.search(r"""--timeout[= ]\s*("[^"]*"|'[^']*'|\S+)""", rest):
        options["timeout"] = match[1].strip("\"'")
        rest = rest.replace(match[0], " ")
    rest = rest.strip()
    if _ONE.fullmatch(rest):
        return Request(size=int(rest), **options)
    if rest and not _SOME.fullmatch(rest):
        raise UsageError(f"%%ranks {line.strip()}: {rest!r} does not name ranks. {_USAGE}")
    some = set[int]()
    for part in filter(None, map(str.strip, rest.split(","))):
        first, _, last = part.partition("-")
        if int(last or first) < int(first):
            raise UsageError(f"%%ranks {line.strip()}: {part!r} ends before it begins. {_USAGE}")
        some.update(range(int(first), int(last or first) + 1))
    return Request(some=tuple(sorted(some)), **options)


@magics_class
class RanksMagic(Magics):
    """The ranks of one notebook."""

    shell: InteractiveShell
    team: Ranks | None = None

    @line_cell_magic
    def ranks(self, line: str, cell: str | None = None) -> None:
        """Run the cell on ranks; as a line, say how they are."""
        request = parse(line)
        try:
            if cell is None:
                return self._line(request)
            result = self._run(request, cell)
        except WorkbenchError as error:
            raise UsageError(str(error)) from None
        show(result)
        self._hint(result)
        result.check()

    def _run(self, request: Request, cell: str) -> CellResult:
        code, name = f"\n{cell}", f"cell {self.shell.execution_count}"  # lines as they are seen
        _refuse_what_is_not_python(code, name)
        team = self._team(request)
        if request.name:
            self.shell.user_ns[request.name] = team
        try:
            return team.execute(code, ranks=request.some or None, name=name, tell=say)
        finally:
            if (stage := self._stage()) is not None:
                stage.renew()

    def _line(self, request: Request) -> None:
        team = self._living()
        if request.end:
            if team is not None:
                team.close()
            print("The ranks have ended." if team else "There are no ranks.")
            self.team = None
        elif request.size is not None:
            self._team(request)
        else:
            print(describe(team) if team else f"There are no ranks yet. {_USAGE}")

    # -- the ranks --

    def _living(self) -> Ranks | None:
        if self.team is not None and self.team.done:
            print("[workbench] the ranks have ended: their variables are gone", file=sys.stderr)
            self.team = None
        return self.team

    def _team(self, request: Request) -> Ranks:
        """Return the present ranks, or new ones if other ranks are asked for."""
        team = self._living()
        size = request.size or (team.size if team else 0)
        if not size:
            raise UsageError(f"there are no ranks yet: say how many, as in %%ranks 4. {_USAGE}")
        if team is not None and not (team.size == size and _suits(team, request)):
            alone = f" (%%ranks {size}, would be rank {size} alone)" if size < team.size else ""
            print(
                f"[workbench] new ranks: the {team.size} before have ended, and their variables "
                f"are gone{alone}",
                file=sys.stderr,
            )
            team.close()
            team = None
        if team is None:
            team = self.team = Ranks(size, bare=request.bare, timeout=request.timeout or TIMEOUT)
            if request.stage and (stage := self._stage()) is not None:
                stage._ipython_display_()
        return team

    def _stage(self) -> Any:
        """Return the ranks' view; None without ranks or without the user interface."""
        if self.team is None:
            return None
        try:
            return self.team.view("collectives")
        except ModuleNotFoundError:
            return None

    def _hint(self, result: CellResult) -> None:
        """Explain that a name that is missing on the ranks is a variable of the notebook."""
        missing = {error["missing"] for error in result.errors.values()} - {""}
        for name in sorted(missing & set(self.shell.user_ns)):
            print(
                f"[workbench] {name} is a variable of the notebook; the ranks have their own: "
                "define it in a %%ranks cell",
                file=sys.stderr,
            )


def _suits(team: Ranks, request: Request) -> bool:
    """Return whether these are the ranks that are asked for, apart from their number."""
    bare = not request.size or team.bare == request.bare
    return bare and request.timeout in ("", team.timeout)


def _refuse_what_is_not_python(code: str, name: str) -> None:
    try:
        running.parse(code, name)
    except SyntaxError as error:
        if (error.text or "").lstrip().startswith(("%", "!")):
            raise UsageError(
                f"line {error.lineno}: {(error.text or '').strip()!r} is for IPython; a %%ranks "
                "cell is plain Python"
            ) from None
        raise


def say(kind: str, ranks: Sequence[int], text: str) -> None:
    """Print what happens on the ranks, as it happens."""
    if kind == "note":
        print("\n".join(f"[workbench] {line}" for line in text.splitlines()), file=sys.stderr)
    else:
        out = sys.stdout if kind == "out" else sys.stderr
        print(label_lines(ranks, text), file=out, flush=True)


def show(result: CellResult) -> None:
    """Show the values of the last expression, by rank."""
    for ranks, text in together(result.values):
        print(label_lines(ranks, text))


def describe(team: Ranks) -> str:
    """Return a description of the ranks, one per line."""
    group = "yours to make" if team.bare else f"workbench, generation {team.generation}"
    cells = f"{team.cells} cell{'s' * (team.cells != 1)}"
    lines = [f"{counted(team.size, 'rank')}, {cells} so far. Process group: {group}"]
    ended = team.control_state.ended
    for rank, pid in team.pids.items():
        lines.append(f"rank {rank}: {ended.get(rank) or f'process {pid}'}")
    return "\n".join(lines)


def load(shell: Any) -> None:
    """Make the magics known to this IPython."""
    shell.register_magics(RanksMagic)
