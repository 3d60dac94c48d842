"""A job that knows nothing of the workbench: its process groups are replaced, or observed.

``workbench attach -- COMMAND`` (command.py) sets WORKBENCH_ATTACH and becomes COMMAND. In every
process of the job torch loads our entry point, which puts ``groups.make_group`` in front of torch's
own way to make a group:

    engine        groups whose tensors lie on a CPU are ours, under the name that was asked for
    operations    every group is torch's, within an ObservedGroup that records operations as spans

It imports no polars and no user interface.
"""
