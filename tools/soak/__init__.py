"""Long use: hundreds of runs, cells and checks in one driver, with everything that goes wrong.

    python -m tools.soak --minutes 60         (make soak)
    python -m tools.soak --seed 7 --only 131  one case of it again

Each case is drawn from a seed and its number alone. After each the driver and its pool must hold
what they held before: no process, descriptor, port, thread, mapping, file or object of a run more;
and over the second half of the cases their memory must not grow.
"""
