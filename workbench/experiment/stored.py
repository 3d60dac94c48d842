"""The experiment that is stored with a run, as plain values: of another version too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

STORED = "experiment"  # its key in a run's metadata


def read_stored(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of the experiment; {} where none is stored.

    Raises ValueError for text that is not an experiment's.
    """
    try:
        fields = yaml.safe_load(metadata.get(STORED, "")) or {}
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    if not isinstance(fields, dict):
        raise ValueError(f"an experiment has fields, this is a {type(fields).__name__}")
    return fields


def settings(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of the experiment; {} where none is stored or it cannot be read."""
    try:
        return read_stored(metadata)
    except ValueError:
        return {}
