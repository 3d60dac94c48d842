"""JavaScript without what only readers of its source need: comments, indentation, spaces that part
nothing. Strings, templates, regular expressions and licenses stay as they are, and so does each
line break at which a statement may end.
"""

from __future__ import annotations

import re

# What is looked at as one piece. A slash that begins no comment is a division or an expression.
_QUOTE = (
    r"""(?P<comment>/\*[\s\S]*?\*/|//[^\n]*)"""
    r"""|(?P<string>'(?:\\[\s\S]|[^'\\\n])*'|"(?:\\[\s\S]|[^"\\\n])*")"""
    r"""|(?P<template>`)|(?P<slash>/)"""
)
_PIECE = re.compile(_QUOTE + r"""|(?P<plain>[^'"`/]+)""")
_IN_VALUE = re.compile(_QUOTE + r"""|(?P<plain>[^'"`/{}]+)|(?P<brace>[{}])""")
_EXPRESSION = re.compile(r"/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/[a-z]*")
_QUOTED = re.compile(r"(?:\\[\s\S]|(?!\$\{)[^`\\])*")  # of a template, up to its end or a value
_LICENSE = re.compile("licen[cs]e", re.IGNORECASE)

# A word before an expression; behind every other one a slash divides.
_BEFORE_VALUES = frozenset(
    "await case delete do else in instanceof new of return throw typeof void yield".split()
)
_WORD = re.compile(r"[\w$#.]+\Z")
_GO_ON = "{([,;:?=<>&|*%^~"  # no statement ends behind one of these
_CLOSE = "})],;:"  # nor does a line break before one of these end it
_PARTS = _GO_ON + "})]"  # a space beside one of these parts nothing

# The spaces of what lies between two strings or comments: what replaces which, one after another.
_SPACES = [
    ("", re.compile(rf"(?<=[{re.escape(_GO_ON)}])\s+|\s+(?=[{re.escape(_CLOSE)}])")),
    ("\n", re.compile(r"[^\S\n]*\n\s*")),
    ("", re.compile(rf"(?<=[{re.escape(_PARTS)}])[^\S\n]+|[^\S\n]+(?=[{re.escape(_PARTS)}])")),
    (" ", re.compile(r"[^\S\n]+")),
]


def smaller(text: str) -> str:
    """Return the module ``text`` with the same meaning and fewer characters.

    Raises ValueError where a string, template or expression has no end.
    """
    pieces: list[str] = []
    before = ""  # the piece before, without the spaces behind it
    space = ""  # what stood between: nothing, a space, a line break
    at = 0
    while at < len(text):
        match = _PIECE.match(text, at)
        if match is None:
            raise ValueError(f"no JavaScript that can be made smaller: {text[at : at + 40]!r}")
        kind, piece = match.lastgroup, match[0]
        if kind == "template":
            piece = text[at : _template_end(text, at)]
        elif kind == "slash" and _begins_value(before):
            if (expression := _EXPRESSION.match(text, at)) is None:
                raise ValueError(f"a regular expression without an end: {text[at : at + 40]!r}")
            piece = expression[0]
        at += len(piece)
        if kind == "comment":
            if _LICENSE.search(piece):
                pieces += ["\n", piece, "\n"]
                space = ""
            else:
                space = _wider(space, piece)
            continue
        if kind == "plain":
            space = _wider(space, piece[: len(piece) - len(piece.lstrip())])
            behind = piece[len(piece.rstrip()) :]
            if not (piece := piece.strip()):
                continue
            pieces += [_between(before, space, piece), _closer(piece)]
            before, space = piece, _wider("", behind)
            continue
        pieces += [_between(before, space, piece), piece]
        before, space = piece, ""
    return "".join(pieces).strip() + "\n"


def _wider(space: str, more: str) -> str:
    """Return what stands where ``more``, spaces or a comment, follows ``space``."""
    return "\n" if "\n" in more or space == "\n" else " " if more else space


def _closer(text: str) -> str:
    """Return words and signs without the spaces that part nothing."""
    for instead, spaces in _SPACES:
        text = spaces.sub(instead, text)
    return text


def _begins_value(before: str) -> bool:
    """Return whether a value may follow that piece, rather than an operator."""
    if not before or before[-1] in _GO_ON + "!+-":
        return True
    word = _WORD.search(before[-12:])  # the longest has ten letters
    return word is not None and word[0] in _BEFORE_VALUES


def _between(before: str, space: str, after: str) -> str:
    """Return what has to stand between two pieces that ``space`` was between."""
    if not (before and space):
        return space
    last, first = before[-1], after[0]
    if space == "\n" and last not in _GO_ON and first not in _CLOSE:
        return "\n"
    return "" if last in _PARTS or first in _PARTS else " "


def _template_end(text: str, at: int) -> int:
    """Return where the template that begins at ``at`` ends; its values may have templates."""
    begin, at = at, at + 1
    while (match := _QUOTED.match(text, at)) is not None:
        at = match.end()
        if text.startswith("`", at):
            return at + 1
        if not text.startswith("${", at):
            break
        at = _value_end(text, at + 2)
    raise ValueError(f"a template without an end: {text[begin : begin + 40]!r}")


def _value_end(text: str, at: int) -> int:
    """Return what follows the brace that closes a template's value."""
    depth, before = 1, "{"
    while match := _IN_VALUE.match(text, at):
        kind, piece = match.lastgroup, match[0]
        if kind == "template":
            piece = text[at : _template_end(text, at)]
        elif kind == "slash" and _begins_value(before):
            piece = (_EXPRESSION.match(text, at) or match)[0]
        at += len(piece)
        depth += (piece == "{") - (piece == "}")
        if not depth:
            return at
        before = before if kind == "comment" else piece.rstrip() or before
    raise ValueError("a template's value without an end")
