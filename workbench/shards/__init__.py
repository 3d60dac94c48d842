"""Fully sharded training: which layers are sharded, what is gathered when, what a rank holds."""
