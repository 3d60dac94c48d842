"""The minutes that each chapter takes, as a table of the map (chapter 0).

To run: measured when ``python -m tests.notebooks`` executed it. To read: its words, at 150 words
per minute. Exercises: what each of them says, see ``wb.progress()``.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

HEAD = "## How long each chapter takes"
WORDS_PER_MINUTE = 150
LEAD = (
    f"{HEAD}\n\nMinutes. *To run*: all cells, one after the other, measured on two cores that had "
    "other work to do as well; with two cores of your own it is at most that. "
    f"*To read*: its text, at {WORDS_PER_MINUTE} words per minute. *Exercises*: those that check "
    "themselves, as each of them says. *After*: the chapters that it takes for granted."
)
AFTER = {  # chapter -> those that it takes for granted
    "1": "02 09 10 11 15 21",
    "1 or 12": "05 08 08b 13 20",
    "2": "02b 03 04 18 24",
    "3": "03b",
    "5": "05b 05c 06",
    "6": "06b 06c 07",
    "8": "08c 22",
    "9": "09b",
    "10": "10b 10c",
    "11": "11b",
    "13": "14",
    "14": "14b",
    "15": "15b 16 17",
    "18": "19",
}


def number(name: str) -> str:
    """Return the number of a chapter's file, such as "06b"."""
    match = re.match(r"\d\d[a-z]?", name)
    assert match, f"{name} has no chapter's number"
    return match[0]


def table(folder: Path) -> str:
    """Return the table, with a row for each chapter that was executed."""
    from workbench.exercises.catalogue import exercises

    of_exercises = [(one, one.minutes) for one in exercises().values()]
    lines = [
        "| chapter | after | to run | to read | exercises |",
        "| --- | --- | --- | --- | --- |",
    ]
    for path in sorted(folder.glob("*.ipynb"))[1:]:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        title, cells = title_of(notebook), notebook["cells"]
        code = "\n".join("".join(one["source"]) for one in cells if one["cell_type"] == "code")
        graded = {*re.findall(r'wb\.grade\("([\w.]+)"', code)}
        minutes = sum(each for one, each in of_exercises if one.name in graded)
        runs = running(notebook["metadata"])
        after = next((one for one, all in AFTER.items() if number(path.name) in all.split()), "")
        lines.append(
            f"| [{title}]({path.name}) | {after} | {runs} | {reading(cells)} | {minutes or ''} |"
        )
    return "\n".join(lines)


def running(metadata: dict[str, Any]) -> str:
    """Return the minutes that a notebook took to run; "" if that was not measured."""
    seconds = metadata.get("workbench", {}).get("seconds")
    return "" if seconds is None else f"{seconds / 60:.1f}"


def title_of(notebook: dict[str, Any]) -> str:
    """Return the heading of a chapter: "6 · Where did the pipeline's time go?"."""
    return "".join(notebook["cells"][0]["source"]).splitlines()[0].removeprefix("# ")


def reading(cells: list[dict[str, Any]]) -> int:
    """Return the minutes that the text of these cells takes to read."""
    words = sum(len("".join(one["source"]).split()) for one in cells if one["cell_type"] != "code")
    return math.ceil(words / WORDS_PER_MINUTE)


def write(folder: Path) -> str:
    """Write the table into the map; return it."""
    path = min(folder.glob("*.ipynb"))
    text = path.read_text(encoding="utf-8")
    notebook = json.loads(text)
    minutes = table(folder)
    (cell,) = (one for one in notebook["cells"] if "".join(one["source"]).startswith(HEAD))
    cell["source"] = f"{LEAD}\n\n{minutes}".splitlines(keepends=True)
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return minutes
