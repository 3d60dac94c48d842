"""Names, comments, messages and documents keep the rules of words.py, which tells where not."""

import pytest

from tests import words

BROKEN = {
    "who": "the rank\n        # who waits",
    "nobody": "def test_nobody_waits() -> None:",
    "no noun": 'f"{line} is "\n    f"no link"',
    "in place of": "bytes in place of tensors",
    "anew": "# made anew",
    "for ever": "waits for ever",
    "rate": "12 rows a second",
    "question": "How many bytes has the all-reduce?",
    "may": "the others may not write",
    "spelling": "_neighbour_of = 3",
}
FINE = """
A user who waits; there is no link; it is no longer there, and no more than two. A second rank has
the color of its neighbor. How many bytes does the ring have? It may go on. A whole number.

"""


def test_the_words_of_all_files_that_are_held() -> None:
    assert not words.report(), "write instead:\n" + "\n".join(words.report())


@pytest.mark.parametrize("rule", words.RULES)
def test_what_breaks_a_rule_is_found_at_its_line(rule: str) -> None:
    line = FINE.count("\n") + (2 if rule == "who" else 1)
    places = [(one.rule, one.line) for one in words.findings(f"{FINE}{BROKEN[rule]}.{FINE}")]
    assert places == [(rule, line)]


def test_every_exception_is_needed() -> None:
    files = [file for pattern in words.HELD for file in words.ROOT.glob(pattern)]
    texts = [words.flat(words.prose(file)) for file in files]
    assert [one for one in words.EXCEPTIONS if not any(one in text for text in texts)] == []
    assert [one for one in words.NOT_HELD if not [*words.ROOT.glob(one)]] == []
