"""How training is distributed: one file a strategy, each with a ``Config`` and ``train(job,
config)``.
"""
