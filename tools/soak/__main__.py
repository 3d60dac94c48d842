"""``python -m tools.soak [--minutes 60] [--cases N] [--seed S] [--only NUMBER] [--kind KIND]``.

``--kills N`` strikes ranks of N runs instead (kills.py), ``--exits N`` lets N scripts end in the
midst of something (exits.py); both print a table and write ``--json PATH``.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

MOST_GROWN = 4.0  # MB that a process may surely have grown by, over the second half of the cases
# The driver's table library keeps freed pages for a while: given back at once, what is left is what
# is in use. It is asked when the library is first imported.
GIVES_BACK = {"_RJEM_MALLOC_CONF": "dirty_decay_ms:0,muzzy_decay_ms:0"}


def main() -> int:
    options = _parse_arguments()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's "... &" has it ignored
    os.environ |= GIVES_BACK
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder  # what is left there is of a case
        if options.kills:
            return _kills(options, Console())
        if options.exits:
            return _exits(options, Console())
        return _soak(options, Console())


def _kills(options: argparse.Namespace, console: Console) -> int:
    import workbench as wb
    from tools.soak.kills import Kills

    kills = Kills(options.seed)
    first, count = (options.only, 1) if options.only is not None else (options.first, options.kills)
    console.print(f"python -m tools.soak --kills {options.kills} --seed {options.seed}")
    for one in kills.cases(count, first):
        words = one.wrong or one.outcome
        console.print(
            f"{one.number:5} {one.strategy:17} ×{one.ranks} {one.how:25} {one.when:9} "
            f"{one.victims!s:7} {one.seconds:6.2f} s  {words}",
            soft_wrap=True,
            highlight=False,
            markup=False,
        )
        if one.wrong:
            console.print(
                f"  {one.words}\n  again: --seed {options.seed} --kills 1 --only {one.number}"
            )
    left = kills.left()
    wb.shutdown()
    return _report(kills, left, options, console)


def _exits(options: argparse.Namespace, console: Console) -> int:
    from tools.soak.exits import Exits

    exits = Exits(options.seed, options.kind or ())
    console.print(f"python -m tools.soak --exits {options.exits} --seed {options.seed}")
    for one in exits.cases(options.exits):
        words = one.wrong or "ended"
        console.print(
            f"{one.number:5} {one.leaves:32} {one.seconds:6.2f} s, {one.own_seconds:5.2f} s of "
            f"them on a core or asleep  {words}",
            soft_wrap=True,
            highlight=False,
            markup=False,
        )
    return _report(exits, {}, options, console)


def _report(done: Any, left: dict[str, int], options: argparse.Namespace, console: Console) -> int:
    """The summary as a table and as JSON, and whether all is well."""
    from tests.conftest import processes, remains

    figures = done.summary()
    columns = list(dict.fromkeys(name for row in figures.values() for name in row))
    table = Table("", *columns)
    for name, row in figures.items():
        table.add_row(name, *(str(row.get(column, "")) for column in columns))
    console.print(table)
    left |= {words: 1 for _, words in (remains(processes, 5.0) or {}).values()}
    console.print(f"left: {left or 'nothing'}", markup=False)
    if options.json is not None:
        done.save(options.json, left)
    return int(bool(left) or any(one.wrong for one in done.done))


def _soak(options: argparse.Namespace, console: Console) -> int:
    import workbench as wb
    from tools.soak.soak import Soak

    soak = Soak(
        options.seed,
        first=options.only or options.first,
        kinds=options.kind or (),
        go_on=options.go_on,
    )
    end = time.monotonic() + options.minutes * 60
    again = f"--seed {options.seed}" + "".join(f" --kind '{kind}'" for kind in options.kind or ())
    console.print(f"python -m tools.soak {again}: each case's number repeats it with --only")
    for done in soak.cases():
        console.print(
            f"{done.number:5} {done.kind:18} {done.seconds:6.1f} s  {done.megabytes:7.1f} "
            f"{done.pool_megabytes:6.1f} MB  {done.words}",
            soft_wrap=True,
            highlight=False,
            markup=False,
        )
        if done.wrong:
            console.print(done.wrong, markup=False, highlight=False)
            console.print(f"\nagain: python -m tools.soak {again} --only {done.number}")
        if options.only is not None or len(soak.done) >= options.cases or time.monotonic() > end:
            break
    wb.shutdown()
    return _conclude(soak, console)


def _conclude(soak: object, console: Console) -> int:
    """The table, and whether all is well."""
    from tests.conftest import processes, remains
    from tools.soak.soak import Soak

    assert isinstance(soak, Soak)
    table = Table("kind", "cases", "faults", "wrong", "median s", "longest s")
    for kind in sorted({done.kind for done in soak.done}):
        cases = [done for done in soak.done if done.kind == kind]
        seconds = [done.seconds for done in cases]
        counts = (
            len(cases),
            sum(one.faults for one in cases),
            sum(bool(one.wrong) for one in cases),
        )
        times = (f"{statistics.median(seconds):.1f}", f"{max(seconds):.1f}")
        table.add_row(kind, *map(str, counts), *times)
    console.print(table)
    failed = any(done.wrong for done in soak.done)
    if soak.done:
        first, last = soak.done[0], soak.done[-1]
        console.print(
            f"driver: {first.megabytes:.0f} MB after case 1, {last.megabytes:.0f} at the end"
        )
    for name, trend in soak.growth.items():
        console.print(f"{name}, MB: {trend}; surely {trend.least:.1f}", soft_wrap=True)
        failed = failed or trend.least > MOST_GROWN
    if left := remains(processes, 5.0):
        console.print(f"left after wb.shutdown(): {left}")
        failed = True
    console.print(f"{len(soak.done)} cases: {'FAILED' if failed else 'nothing left behind'}")
    return int(failed)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="end with the case after that")
    parser.add_argument("--cases", type=int, default=10**9, help="end after so many")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--only", type=int, help="the case of this number alone")
    parser.add_argument("--kind", action="append", help="only such cases; may be given again")
    parser.add_argument("--go-on", action="store_true", help="after a case that is wrong, too")
    parser.add_argument("--kills", type=int, default=0, help="strike the ranks of so many runs")
    parser.add_argument("--exits", type=int, default=0, help="so many scripts that end in a run")
    parser.add_argument("--json", type=Path, help="where the figures are written")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
