"""Checkpoints: what a rank trains, its copy, the files, and the way back.

May import packages up to ``experiment``. What belongs in a checkpoint: ``parts.py``; its files:
``tensor_file.py`` and ``folder.py``; written beside training: ``saver.py``; read: ``saved.py``.
"""
