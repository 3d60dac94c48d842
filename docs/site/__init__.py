"""The documentation site: built from what is in the repository, by ``make site``.

    python -m docs.site build/site

Chapters are pages made from the stored notebooks, with what they show (chapters.py). Runs are made
again and embedded as replays (replays.py). The reference is made from docstrings (reference.py). No
page asks the network for anything. The search box works where the site is served, not from disk.
"""
