"""Presets: experiments to begin with; each starts as it is and says what to look for.

Add a preset to the file of its family, or a file with a family of its own: catalogue.py lists them.
"""
