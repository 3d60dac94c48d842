"""The store: the event table of a run, from the collector to a saved file and its exports.

It may use polars, so no module that a rank imports may import it, except ``result.py``.
"""
