"""Layers split inside, over ranks: tensor parallelism."""
