"""Messaging: what collective algorithms and messages are written against, down to the slot.

It never imports polars or a user interface. An emulated property of links belongs in
``pacing.py``.
"""
