"""Schedules of a pipeline: which rank does which action in which order, one file a schedule.

``<name>.py`` defines ``schedule(ranks, microbatches, stages_per_rank)``, which returns a row of
actions for each rank, such as ["0F0", "0F1", "0B0", "0B1"].
``workbench.training.pipelines.schedule`` says what an action is and what is checked before
anything runs.
"""
