"""Makes up what comes from outside, from new seeds, until something is not answered well.

``python -m tools.fuzz [FAMILY ...] [--seconds 300] [--seed S] [--go-on]``: all families by turns.
``python -m tools.fuzz FAMILY --seed S --cases 1``: that case again, as it is made now.
``python -m tools.fuzz --again FILE``: an input that was kept, as it was.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import workbench as wb
from tools.fuzz import crafted, pages, prices, requests, saved_runs, traces
from tools.fuzz.cases import FAMILIES
from tools.fuzz.family import Family, keep, kept
from tools.fuzz.made_up import damaged

KEPT = Path("runs/fuzz")
LIVE = ("stage_of_a_run", "stage_of_cells")
WEB = ("start_page", "partition_page")
SERVER = ("request", "websocket")
FILES = ("damaged_run", "made_run", "trace_folder")
PRICED = ("costly_link", "costly_form")
NAMES = (*FAMILIES, *FILES, *PRICED, *crafted.NAMES, *WEB, *SERVER, *LIVE)


@contextlib.contextmanager
def families(names: set[str]) -> Iterator[dict[str, Family]]:
    """These, with what they stand on: a folder, a process that reads files, ranks."""
    with contextlib.ExitStack() as stack:
        by_name = dict(FAMILIES)
        if names & {*FILES}:
            by_name |= stack.enter_context(_files())
        if names & {*PRICED}:
            by_name |= stack.enter_context(prices.families())
        if names & {*crafted.NAMES}:
            by_name |= stack.enter_context(crafted.families())
        if names & {*WEB}:
            by_name |= stack.enter_context(pages.web_app())
        if names & {*SERVER}:
            by_name |= stack.enter_context(requests.server())
        if names & {*LIVE}:
            by_name |= stack.enter_context(pages.ranks())
        yield {name: family for name, family in by_name.items() if name in names}


@contextlib.contextmanager
def _files() -> Iterator[dict[str, Family]]:
    opener = saved_runs.Opener()
    with tempfile.TemporaryDirectory(prefix="workbench-fuzz-") as name:
        place = Path(name)
        whole, trace = saved_runs.run(place).read_bytes(), traces.trace(place / "whole")
        right = opener.use(place / "run.parquet")

        def is_refused_or_right(data: bytes) -> None:
            answer = opener.use_bytes(data, place)
            assert "refused" in answer or answer == right, answer

        def is_read_or_refused(data: bytes) -> None:
            answer = opener.use_bytes(data, place)
            assert answer.keys() <= {"read", "refused"}, answer

        def is_read_as_far(damage: traces.Deed) -> None:
            folder = Path(shutil.copytree(trace, place / "spoiled"))
            try:
                traces.spoil(folder, damage)
                traces.read_and_follow(folder)
            finally:
                shutil.rmtree(folder)

        try:
            yield {
                "damaged_run": Family(lambda chance: damaged(whole, chance), is_refused_or_right),
                "made_run": Family(saved_runs.made_by_hand, is_read_or_refused),
                "trace_folder": Family(lambda chance: traces.deed(trace, chance), is_read_as_far),
            }
        finally:
            opener.close()


def main() -> int:
    arguments = _parse_arguments()
    try:
        if arguments.again is not None:
            name, case = kept(arguments.again)
            with families({name}) as by_name:
                by_name[name].judge(case)
            print(f"{name}: answered well")
            return 0
        with families({*(arguments.family or NAMES)}) as by_name:
            return _tried(by_name, arguments)
    finally:
        wb.shutdown()


def _tried(by_name: dict[str, Family], arguments: argparse.Namespace) -> int:
    print(f"python -m tools.fuzz --seed {arguments.seed}", flush=True)
    failed, tried = Counter[str](), Counter[str]()
    deadline = time.monotonic() + arguments.seconds
    for seed in range(arguments.seed, arguments.seed + arguments.cases):
        if time.monotonic() > deadline or (failed.total() and not arguments.go_on):
            break
        for name, family in by_name.items():
            tried[name] += 1
            failed[name] += _fails(name, family, seed)
    for name in by_name:
        print(f"{name:24} {tried[name]:8,} cases  {failed[name]:6,} failed")
    return 1 if failed.total() else 0


def _fails(name: str, family: Family, seed: int) -> bool:
    """Is it answered badly? Then it is kept, and said how to have it again."""
    case: Any = family.make(random.Random(seed))
    try:
        family.judge(case)
    except Exception as error:
        path = keep(KEPT, name, seed, case)
        print(f"{name}, seed {seed}: {type(error).__name__}: {error}"[:2000])
        print(f"    told: {case!r}"[:500])
        print(f"    again: python -m tools.fuzz --again {path}", flush=True)
        return True
    return False


def _parse_arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(
        prog="python -m tools.fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("family", nargs="*", help=", ".join(NAMES))
    options.add_argument("--seconds", type=float, default=300.0)
    options.add_argument("--seed", type=int, default=None, help="of the first case")
    options.add_argument("--cases", type=int, default=10**9, help="of each family, at most")
    options.add_argument("--go-on", action="store_true", help="after a case that fails")
    options.add_argument("--again", type=Path, help="a file of runs/fuzz")
    arguments = options.parse_args()
    if unknown := {*arguments.family} - {*NAMES}:
        options.error(f"there is no family {', '.join(unknown)}; there is {', '.join(NAMES)}")
    if arguments.seed is None:
        arguments.seed = secrets.randbelow(10**9)
    return arguments


if __name__ == "__main__":
    sys.exit(main())
