"""Words: the rules of style that a pattern can tell, for names, comments, messages and Markdown.

``python -m tests.words`` lists what breaks one, and what to write instead.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from itertools import accumulate, chain
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
HELD = (
    *("*.md", "*.py", "docs/**/*.md", "docs/**/*.py"),
    *("workbench/**/*.py", "tests/**/*.py", "tools/**/*.py"),
)
LATER = ("assets/**/*.js", "workbench/**/*.js", "notebooks/*.ipynb")
NOT_HELD = {  # files: why
    "tests/words.py": "names what it looks for",
    "tests/test_words.py": "the same",
    "tests/exercises/chapter_*.py": "answers to the tasks of chapters",
    "workbench/exercises/chapter_*.py": "stored outputs of chapters show the tasks",
}
EXCEPTIONS = {  # words that stay: why
    "catalogue": "two modules, which chapters import",
    "prioritised": "an option's value, in specs that are stored",
    "optimiser state": "a key of plans, in outputs of chapter 5",
    "colour : color,": "a page's script reads it (interface/app/parts/past.js)",
    "colour = traitlets": "a page's script writes it (assets/widgets/ground.js)",
    "dark , colour ": "the same",
    "ground.colour": "the same",
    "known.colour": "the same",
    "MIT licence": "of a file that is not ours",
    "is no latency": "a page's script says it",
    "Nobody Everybody": "what test_docstrings.py looks for",
    "Who Whose Whoever": "the same",
    "What , Who , Which": "the same",
    "grey: this machine": "outputs of chapter 10 show it",
    "samples a second": "the title of an axis in many outputs",
    "iterations a second": "the same",
    "split( )[0]} a second": "the same",
    "waits for ever; arrow": "outputs of chapters 7 and 11b show it",
    "Nobody can go on": "outputs of chapter 12 show it",
    "made anew: generation": "the same",
    "Who touches it, when?": "the question of a preset, in outputs of chapter 0",
    "Whom does it keep waiting?": "the same",
    "two neighbours only": "the title or question of a preset, in outputs of chapter 0",
    "Gossip with everybody": "the same",
    "Pairs, nobody waits": "the same",
    "Who waits for a straggler": "the same",
    "Who mixed with whom": "the title of a scene, in outputs and in its script",
    "Who played, remembered": "the same",
    "Who pushed and pulled": "the same",
    "Who kept which part": "the same",
    "Who waits for whom": "the same",
    "Who is waiting in the queue": "the title of a chapter, or its file's name",
    "2b who stands": "the same",
    "Who waits, and what": "the same",
    "To whom, and who waits": "the same",
    "11b to whom and who waits": "the same",
    "A rank dies: who notices": "the same",
    "who goes on?": "the same",
    "Everybody sends first": "the heading of a section of chapter 14",
}


class Rule(NamedTuple):
    stems: str  # one of these is in all that breaks it: quick to find
    pattern: str  # of text with one blank between words
    instead: str
    fine: str = "(?!)"  # what looks alike and is right


PEOPLE = "anyone|everyone|no one|people|persons?|readers?|someone|students?|those|users?|visitors?"
BE = "is|are|was|were|be|been"
MORE = "longer|more|less|better|worse|fewer|later|earlier|larger|smaller|different"
DOUBLED = "cancell|channell|labell|modell|signall|totall|travell|tunnell"
BRITISH = "behaviour|colour|favour|flavour|honour|labour|neighbour|centre|grey|licence|catalogue"
BRITISH += "|artefact|judgement|learnt|whilst|amongst|towards"
ISE = "analys|categoris|centralis|characteris|customis|emphasis|factoris|generalis|initialis"
ISE += "|materialis|maximis|minimis|normalis|optimis|organis|parallelis|prioritis|quantis|recognis"
ISE += "|sanitis|serialis|specialis|stabilis|standardis|summaris|synchronis|tokenis|visualis"
RULES = {
    "who": Rule(
        "who",
        "who(?:m|ever)?",
        "a rank that, which rank; of people: a user who",
        f"(?:{PEOPLE}),? who",
    ),
    "nobody": Rule(
        "body",
        "nobody|everybody|somebody|anybody",
        "no rank, all ranks; of people: no one, everyone",
    ),
    "no noun": Rule(
        "is no |are no |was no |were no |be no |been no ",
        f"(?:{BE}) no(?! (?:{MORE}))",
        "is not a",
        rf"there (?:\w+ )?(?:{BE}) no|(?:{BE}) there no",
    ),
    "in place of": Rule("in place of", "in place of", "instead of"),
    "anew": Rule("anew", "anew", "again"),
    "for ever": Rule("for ever", "for ever(?! [a-z])|for ever (?:for|on|in|at|and)", "forever"),
    "rate": Rule(
        "a second|a minute|an hour",
        r"(?:\w+s|\w*[KMGTi]B|once|twice|\d|\}) an? (?:second|minute|hour)",
        "per second",
    ),
    "question": Rule(
        "has a|have the|has the",
        r"(?:How|What|Which)\b[^.?!]{0,50} ha(?:s|ve) (?:the|an?) [^.!]{0,80}\?",
        "How many bytes does the ring carry?",
    ),
    "may": Rule(
        "may not|may never|how ",
        r"may (?:not|never)|how (?:\w+ ){1,2}may",
        "must not; cannot, might not; how long can",
    ),
    "spelling": Rule(
        "|".join((BRITISH, DOUBLED, ISE)),
        rf"\w*?(?:{BRITISH}|(?:{DOUBLED})(?:ed|er|ing)|"
        rf"(?:{ISE})(?:e|ed|er|ers|ing|ation|ations)(?![a-z]))\w*",
        "American: color, center, -ize",
    ),
}
_PATTERNS = {
    name: re.compile(f"(?<![a-z])(?:(?P<fine>{rule.fine})|{rule.pattern})(?![a-z])", re.I)
    for name, rule in RULES.items()
}


class Finding(NamedTuple):
    line: int
    rule: str
    words: str


def findings(text: str) -> Iterator[Finding]:
    """Yield what breaks a rule, found near the rule's stems: a whole text takes too long."""
    words = flat(text)
    low = words.lower()
    for name, rule in RULES.items():
        done = 0
        for at in sorted(chain(*(_places(low, stem) for stem in rule.stems.split("|")))):
            first, last = words.rfind(" ", 0, max(at - 80, 0)) + 1, words.find(" ", at + 120)
            for match in _PATTERNS[name].finditer(words, first, last if last >= 0 else len(words)):
                around = words[max(0, match.start() - 60) : match.end() + 60]
                if (
                    match.start() < done
                    or match["fine"]
                    or any(one in around for one in EXCEPTIONS)
                ):
                    continue
                done = match.end()
                yield Finding(_line(text, match.start()), name, match[0])


def flat(text: str) -> str:
    """Return a text with one blank between words, also those of two lines and of a name."""
    for mark in (' f"', "_", "#", '"', "'", "*"):
        text = text.replace(mark, " ")
    return " ".join(text.split())


def _places(text: str, stem: str) -> Iterator[int]:
    at = text.find(stem)
    while at >= 0:
        yield at
        at = text.find(stem, at + 1)


def _line(text: str, at: int) -> int:
    """Return the line of a place in the flat text: the first whose flat text reaches beyond it."""
    lines = text.splitlines()
    lasts = accumulate(len(here) + 1 if (here := flat(line)) else 0 for line in lines)
    return next((number for number, last in enumerate(lasts, 1) if last > at), len(lines))


def prose(file: Path) -> str:
    """Return what is held of a file: all of it, but for notebooks, whose Markdown it is."""
    text = file.read_text(encoding="utf-8")
    if file.suffix != ".ipynb":
        return text
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
    return "\n\n".join("".join(cell["source"]) for cell in cells)


def report() -> list[str]:
    """Return a line for each finding in the files that are held."""
    files = sorted({file for pattern in HELD for file in ROOT.glob(pattern)})
    names = {file: file.relative_to(ROOT).as_posix() for file in files}
    return [
        f"{names[file]}:{one.line}: {one.words!r}: {RULES[one.rule].instead} ({one.rule})"
        for file in files
        if not any(file.match(one) for one in NOT_HELD)
        for one in findings(prose(file))
    ]


if __name__ == "__main__":
    lines = report()
    print("\n".join(lines))
    sys.exit(bool(lines))
