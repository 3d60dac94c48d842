"""Common: what every package may use: errors, units, files, threads, checks of arguments.

It imports no other package. Put here only what several packages need and none of them owns.
"""
