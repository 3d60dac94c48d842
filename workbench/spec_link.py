"""An Experiment in a web address: its YAML, compressed, in letters that addresses may hold.

A link comes from anyone. It carries names and numbers, never code; it is refused, in words, where
it is too long, damaged, or made to blow up when it is read.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib

import yaml

from workbench.errors import SpecError
from workbench.source import listed
from workbench.spec import Experiment

LONGEST = 4_000  # characters: browsers and servers take addresses of 8,000
LARGEST = 65_536  # bytes of YAML


def to_link(exp: Experiment) -> str:
    """Letters, digits, - and _. Raises SpecError if ``exp`` carries code or does not fit."""
    if exp.carries_code:
        raise SpecError(
            f"this experiment carries code of its author's in {listed(exp.carries_code)}, and a "
            "link carries none: send its YAML, exp.to_yaml('spec.yaml')"
        )
    text = exp.to_yaml()
    link = base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")
    if len(link) > LONGEST:
        raise SpecError(
            f"this experiment makes a link of {len(link):,} characters, and {LONGEST:,} are the "
            "most: send its YAML, exp.to_yaml('spec.yaml')"
        )
    return link


def from_link(text: str) -> Experiment:
    """The Experiment that ``to_link`` put there. Raises SpecError that says what is wrong."""
    text = text.strip()
    if len(text) > LONGEST:
        raise SpecError(
            f"this link has {len(text):,} characters, and {LONGEST:,} are the most: it was not "
            "made by the workbench"
        )
    if not re.fullmatch(r"[A-Za-z0-9_-]+", text):
        raise _damaged()
    return _read(_unpacked(text))


def _unpacked(text: str) -> str:
    try:
        packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(packed, LARGEST)
        if unpacker.unconsumed_tail:
            raise SpecError(
                f"what this link carries is larger than {LARGEST:,} bytes: it was not made by the "
                "workbench"
            )
        if not unpacker.eof:
            raise _damaged()
        return data.decode()
    except (binascii.Error, zlib.error, UnicodeDecodeError, ValueError):
        raise _damaged() from None


def _read(text: str) -> Experiment:
    try:
        for event in yaml.parse(text):  # an alias is how a short text becomes an endless one
            if isinstance(event, yaml.AliasEvent) or getattr(event, "tag", None):
                raise _damaged()
        return Experiment.from_yaml(text + "\n")  # with a line's end it is never a file's name
    except (yaml.YAMLError, RecursionError):
        raise _damaged() from None


def _damaged() -> SpecError:
    return SpecError(
        "this link carries no experiment: it was cut short or changed on its way. Copy it again, "
        "whole"
    )
