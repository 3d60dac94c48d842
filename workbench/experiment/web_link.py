"""An Experiment in a web address: its YAML, compressed, in letters that addresses may hold.

A link comes from anyone. It carries names and numbers, never code; it is refused, in words, where
it is too long, damaged, or made to blow up when it is read.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from workbench.common.errors import SpecError
from workbench.common.names import listed
from workbench.experiment.spec import Experiment
from workbench.experiment.yaml_text import OF_A_VISITOR, as_fields, code_in, parse

LONGEST = 4_000  # characters: browsers and servers take addresses of 8,000
LARGEST = 65_536  # bytes of YAML

Allow = Callable[[Mapping[str, Any]], None]


def to_link(exp: Experiment) -> str:
    """Return letters, digits, - and _. Raises SpecError if ``exp`` carries code or does not fit."""
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


def from_link(text: str, allow: Allow = lambda fields: None) -> Experiment:
    """Return the Experiment that ``to_link`` wrote. Raises SpecError, which names the fault.

    ``allow`` gets the fields before an Experiment is made and checked; it raises for what it
    refuses.
    """
    text = text.strip()
    if len(text) > LONGEST:
        raise SpecError(
            f"this link has {len(text):,} characters, and {LONGEST:,} are the most: it was not "
            "made by the workbench"
        )
    if not re.fullmatch(r"[A-Za-z0-9_-]+", text):
        raise _damage_error()
    fields = _read(_unpack(text))
    allow(fields)
    return Experiment(**fields)


def _unpack(text: str) -> str:
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
            raise _damage_error()
        return data.decode()
    except (binascii.Error, zlib.error, UnicodeDecodeError, ValueError):
        raise _damage_error() from None


def _read(text: str) -> dict[str, Any]:
    """Return the fields of an Experiment: of bounded depth and number, and without code."""
    try:
        fields = as_fields(parse(text, OF_A_VISITOR), text)
    except SpecError as error:
        raise SpecError(f"this link carries no experiment: {error}") from None
    if carrying := list(code_in(fields)):
        raise SpecError(
            f"this link carries its author's code in {listed(carrying)}, and a link may carry none"
        )
    return fields


def _damage_error() -> SpecError:
    return SpecError(
        "this link carries no experiment: it was cut short or changed on its way. Copy it again, "
        "whole"
    )
