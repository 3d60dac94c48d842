"""JavaScript without what only readers of its source need: comments, indentation, spaces that part
nothing. Strings, templates, regular expressions and licenses stay as they are, and so does each
line break at which a statement may end.
"""

from __future__ import annotations

import re

# What is looked at as one piece. A slash that begins no comment is a division or an expression.
_PIECE = re.compile(
    r"""(?P<space>[ \t\n]+)|(?P<comment>/\*[\s\S]*?\*/|//[^\n]*)"""
    r"""|(?P<string>'(?:\\[\s\S]|[^'\\\n])*'|"(?:\\[\s\S]|[^"\\\n])*")"""
    r"""|(?P<template>`)|(?P<slash>/)|(?P<word>[\w$#.]+)|(?P<other>[^\s\w$#.'"`/])"""
)
_EXPRESSION = re.compile(r"/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/[a-z]*")
_QUOTED = re.compile(r"(?:\\[\s\S]|(?!\$\{)[^`\\])*")  # of a template, up to its end or a value
_LICENSE = re.compile("licen[cs]e", re.IGNORECASE)

# A word before an expression; behind every other one a slash divides.
_BEFORE_VALUES = frozenset(
    "await case delete do else in instanceof new of return throw typeof void yield".split()
)
_PARTS = frozenset("{}()[],;:?=<>&|*%^~")  # a space beside one of these parts nothing
_GO_ON = frozenset("{([,;:?=<>&|*%^~")  # no statement ends behind one of these
_CLOSE = frozenset("})],;:")  # nor does a line break before one of these end it


def smaller(text: str) -> str:
    """Return the module ``text`` with the same meaning and fewer characters.

    Raises ValueError where a string, template or expression has no end.
    """
    pieces: list[str] = []
    before = ""  # the piece before, which is not a space
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
        if kind == "space" or (kind == "comment" and not _LICENSE.search(piece)):
            space = "\n" if "\n" in piece or space == "\n" else " "
            continue
        if kind == "comment":
            pieces += ["\n", piece, "\n"]
            space = ""
            continue
        pieces += [_between(before, space, piece), piece]
        before, space = piece, ""
    return "".join(pieces).strip() + "\n"


def _begins_value(before: str) -> bool:
    """Return whether a value may follow that piece, rather than an operator."""
    return not before or before in _BEFORE_VALUES or (before in "{([,;:?=<>&|*%^~!+-")


def _between(before: str, space: str, after: str) -> str:
    """Return what has to stand between two pieces that ``space`` was between."""
    if space == "\n" and before not in _GO_ON and after not in _CLOSE:
        return "\n"
    return " " if space and not (before in _PARTS or after in _PARTS) else ""


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
    while match := _PIECE.match(text, at):
        kind, piece = match.lastgroup, match[0]
        if kind == "template":
            piece = text[at : _template_end(text, at)]
        elif kind == "slash" and _begins_value(before):
            piece = (_EXPRESSION.match(text, at) or match)[0]
        at += len(piece)
        depth += (piece == "{") - (piece == "}")
        if not depth:
            return at
        before = before if kind in ("space", "comment") else piece
    raise ValueError("a template's value without an end")
