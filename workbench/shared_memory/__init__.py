"""Shared memory: segments and semaphores without names, and the control block of a run.

It imports ``common``. A word that driver and ranks share belongs in ``control_block.py``.
"""
