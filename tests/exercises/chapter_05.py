"""Answers to the exercises of chapter 5."""

ANSWERS = {
    "05.1": (
        ["blocks.1", "blocks.3", "blocks.5"],
        ["blocks.2", "blocks.4", "blocks.6"],
        ["nowhere", "blocks.4", "blocks.6"],
    ),
    "05.2": ((24_576, 16_896), (24_576, 12_288), (29_184, 16_896)),
    "05.4": ((140, 131.072), (100, 131.072), (140, 65.536), (160, 32.768)),
    "05.3": ("no", "yes", "yes"),
}
