"""Speed, as ratios measured side by side in one run. ``make bench`` prints them; no test asserts
them.

Each module has ``measure() -> list[Figure]``. What is compared runs in the same processes, in
turns, so that noise strikes both; medians are compared. A figure that falls short is printed as
short.
"""
