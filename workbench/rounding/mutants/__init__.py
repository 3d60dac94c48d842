"""Data parallel training with one thing wrong in each file; strategies/data_parallel.py is right.

The first line of a file says what is wrong in it, in the words of a report.
"""
