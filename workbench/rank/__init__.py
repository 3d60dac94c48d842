"""A rank: what every rank process does, from its first order to its last report.

It never imports polars: ranks must start fast. A strategy sees of it the ``Job``.
"""
