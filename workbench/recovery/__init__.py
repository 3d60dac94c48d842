"""Recovery policies, for a run that loses a rank: one a file, with ``recover(failure)``, which
returns the team to go on with or None, and ``check(exp)``, which refuses experiments that it does
not fit.

It may import all that is listed above it in ARCHITECTURE.md. To add a policy, add a file here, or
pass a function: ``Experiment(recovery=my_function)``.
"""
