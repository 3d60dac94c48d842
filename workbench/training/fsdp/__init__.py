"""Fully sharded training: the layers that are sharded, when they are gathered, what a rank
holds.
"""
