"""Markdown of notebooks as the site wants it: links between pages, formulas as MathML."""

from __future__ import annotations

import re

FENCE = re.compile(r"(```.*?```|`[^`\n]+`)", re.S)
BLOCK = re.compile(r"\$\$(.+?)\$\$", re.S)
INLINE = re.compile(r"(?<![\\$\w])\$(?!\s)([^$\n]+?)(?<!\s)\$(?!\w)")
LINK = re.compile(r"\]\((?:\.\./)?(?:notebooks/)?(\d\d[a-z]?_\w+)\.ipynb(#[^)]*)?\)")


def page(text: str) -> str:
    """Return the Markdown of a page: code stays as it is."""
    parts = FENCE.split(text)
    return "".join(part if at % 2 else _prose(part) for at, part in enumerate(parts))


def _prose(text: str) -> str:
    text = LINK.sub(lambda found: f"]({found[1]}.md{found[2] or ''})", text)
    text = BLOCK.sub(lambda found: f"\n\n{mathml(found[1], block=True)}\n\n", text)
    text = INLINE.sub(lambda found: mathml(found[1]), text)
    return text.replace("<details>", '<details markdown="1">')


def mathml(formula: str, block: bool = False) -> str:
    """Return a formula as MathML, which browsers draw themselves."""
    from latex2mathml.converter import convert

    one_line = " ".join(formula.split())
    return " ".join(convert(one_line, display="block" if block else "inline").split())
