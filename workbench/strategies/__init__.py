"""Strategies of distributed training: one file each, with a ``Config`` and ``train(job,
config)``.
"""
