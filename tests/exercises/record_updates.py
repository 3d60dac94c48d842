"""``python -m tests.exercises.record_updates``: audits of chapter 22's ten wrong updates, by which
exercises 22.1 and 22.2 judge an answer. Ten audits take two minutes.
"""

from __future__ import annotations

import json
from typing import Any

import workbench as wb
from workbench.auditing.report import Audit
from workbench.exercises.chapter_22 import FILE
from workbench.exercises.wrong_updates import BUGS, train


def audited(bug: str) -> Audit:
    """Return the audit of the step with that bug; with none for ""."""
    return wb.audit(train, ranks=4, env={"BUG": bug}, progress=False)


def row(report: Audit) -> dict[str, Any]:
    """Return what the exercises look at."""
    names = {one.parameter.partition(".")[0] for one in report.findings}
    named = sorted({one.parameter for one in report.findings})
    every = "" in names or len(names) == 4
    parameter = "all" if every else "norm" if names == {"norm"} else named[0]
    factors = {round(one.factor, 3) for one in report.findings} or {1.0}
    return {"parameter": parameter, "factor": max(factors), "sentence": report.sentence}


def main() -> None:
    assert audited("").verdict == "RIGHT"
    rows = {}
    for bug in BUGS:
        report = audited(bug)
        assert report.verdict == "WRONG", report
        rows[bug] = row(report)
        print(bug, rows[bug], flush=True)
    FILE.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
