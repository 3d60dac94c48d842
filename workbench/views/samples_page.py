"""The picture of a partition, without a run: one message, and the scene draws it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.views import Message
from workbench.views.feed import nothing


def samples_page(
    samples: Mapping[str, Any], words: str, title: str = "Partition", number: int = 1
) -> Message:
    """What a page is told that shows ``samples`` (the header's ``run.samples``) alone: no time bar,
    no other scenes. ``words``: the sentence above it; ``number``: which message of the page it is.
    """
    message = nothing(words, scene="samples")
    run = {
        "title": title, "ranks": samples["ranks"], "samples": dict(samples) | {"words": words},
        "alone": True,
    }  # fmt: skip
    header = message.header | {"run": message.header["run"] | run, "seq": number}
    return Message(header, message.payload)
