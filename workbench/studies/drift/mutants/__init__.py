"""Data parallel training with one thing wrong in each file; strategies/data_parallel.py is right.

The first line of a file says what is wrong in it, in the words of a report. Those of resuming
(no_optimizer_state, no_sampler_position, no_generators) are right until iteration ``at``, where
they go on as if from a checkpoint.
"""
