"""Samples by rank and minibatch: ``wb.partition``, and what runs tell."""
