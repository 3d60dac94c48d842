"""An audit of a training step: is the update that is used the one that is due?

    audit.py      ``wb.audit``: starts ranks, asks, reports
    ranks/        what runs inside the ranks of an audited script
    judging/      which runs to ask for, and what they say; numbers only, no model is known there

Each rank forks at ``init_process_group``, once per run that the judge asks for. A run goes on with
the script to the end of one update, with parameters nudged along a direction, or with some losses
switched off. The forward pass is believed; the backward pass and all that follows is judged by it:

    due     how each loss changes with each parameter, by differences
    used    the part of the update that each loss alone gives, with SGD at a learning rate of 1
    weight  used / due: right where it is the same for every parameter on every rank

It imports no polars and no user interface, and torch in the ranks alone.
"""
