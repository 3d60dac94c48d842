"""The experiment: what to run, as frozen data that is checked before any process starts.

A field stands in ``spec.py``, ``network.py`` or ``faults.py``; what it excludes, in
``checks.py``.
"""
