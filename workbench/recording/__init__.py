"""Recording: the event record, the writer of every thread of a rank, and what recording costs.

It never imports polars: ranks must start fast. A new kind of event begins in ``events.py``.
"""
