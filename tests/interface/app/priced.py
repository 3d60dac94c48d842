"""The cost of one message to the web app: a process of its own, that cannot take more than it may.

``python -m tests.interface.app.priced``: a case a line on stdin, as JSON; a line back for each,
with the processor time in milliseconds (the least of three: other work on the cores only adds to
it) and what was said. A case that takes
five seconds ends the process; what takes more than ``MOST_BYTES`` is a MemoryError.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
MOST_BYTES = 50_000_000
MOST_SECONDS = 5  # of processor time for a case, before its process is ended
TRIES = 3


class Priced:
    """The process, from outside. ``price`` raises AssertionError where it has not survived."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.interface.app.priced"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self._process.stdout
        assert json.loads(self._process.stdout.readline()) == "ready"

    def price(self, case: dict[str, Any]) -> tuple[float, str]:
        """(milliseconds of processor time, what was said: "" where it was taken)."""
        assert self._process.stdin and self._process.stdout
        print(json.dumps(case), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            code = self._process.wait()
            self.__init__()  # type: ignore[misc]  # for the next case, and Hypothesis's smaller ones
            raise AssertionError(f"ended with {code}: more than {MOST_SECONDS} s of processor time")
        ms, answer_text = json.loads(answer)
        return ms, answer_text

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def main() -> None:
    from workbench.common.errors import WorkbenchError
    from workbench.experiment.spec import Experiment
    from workbench.interface import form
    from workbench.interface.app.limits import Limits
    from workbench.interface.app.start import link_of, plain

    limits = Limits()

    def take(case: dict[str, Any]) -> str:
        """As the start page takes it (``StartPage.take``, ``fill_from_link``), or a script."""
        try:
            if "link" in case:
                exp = form.from_link(case["link"], limits.check_fields)
            elif "values" in case:
                exp = form.experiment(plain(case["values"]), limits.check_fields)
            else:
                exp = Experiment(**case["fields"])
                return ""
        except WorkbenchError as error:
            return f"{type(error).__name__}: {error}"
        form.values(exp), form.as_program(exp), link_of(exp)
        return ""

    for preset in form.presets().values():  # so that what is imported once has been
        take({"values": form.values(preset.experiment)})
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        case, spent, answer = json.loads(line), list[float](), ""
        _allow_seconds()
        for _ in range(TRIES):
            began = time.thread_time()
            answer = take(case)
            spent.append((time.thread_time() - began) * 1000)
        print(json.dumps([min(spent), answer]), flush=True)


def _allow_seconds() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime) + 1 + TRIES * MOST_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main()
