"""The picture of a partition, without a run: one message, and the scene draws it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.views.packing import Message
from workbench.views.pages.feed import nothing


def samples_page(
    samples: Mapping[str, Any], words: str, title: str = "Partition", number: int = 1
) -> Message:
    """Return the message for a page that shows ``samples`` (the header's ``run.samples``) alone: no
    time bar, no other scenes. ``words``: the sentence above it; ``number``: which message of the
    page it is.
    """
    message = nothing(words, scene="samples")
    run = {
        "title": title,
        "ranks": samples["ranks"],
        "samples": dict(samples) | {"words": words},
        "alone": True,
    }
    header = message.header | {"run": message.header["run"] | run, "seq": number}
    return Message(header, message.payload)
