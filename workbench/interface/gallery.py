"""Eight presets to begin with, each with a small moving picture of a recorded run of it.

    picture("Ring of four", dark=True)               an animated WebP, in assets/thumbnails/
    picture("Ring of four", dark=True, still=True)   one frame, without motion

``make picture`` takes them again. The other presets are found by their groups and by search.
"""

from __future__ import annotations

from pathlib import Path

from workbench.front_end.assets import asset

# Preset -> the stem of its pictures; in the order in which they are shown.
GALLERY = {
    "Ring of four": "ring",
    "DDP: four buckets": "ddp",
    "A hot server": "server",
    "Server: SSP": "ssp",
    "Pipeline: 1F1B": "pipeline",
    "Gossip on a ring": "gossip",
    "A rank dies, another takes its place": "recovery",
    "Ape-X: four actors, one learner": "apex",
}
GROUNDS = ("light", "dark")


def file_name(stem: str, *, dark: bool = False, still: bool = False) -> str:
    """Return the name of a picture's file: ``ring.dark.still.webp``."""
    return ".".join([stem, GROUNDS[dark], *(["still"] if still else []), "webp"])


def picture(preset: str, *, dark: bool = False, still: bool = False) -> Path:
    """Return the path of a preset's picture. Raises KeyError for one that has none."""
    return asset(f"thumbnails/{file_name(GALLERY[preset], dark=dark, still=still)}")
