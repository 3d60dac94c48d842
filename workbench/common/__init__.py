"""Common: what every room may use: errors, units, files, threads, checks of arguments.

It imports no other room. Put here only what several rooms need and none of them owns.
"""
