"""Studies: questions that take many runs or none: compare, check, drift, speed-up, interval, plan.

A study keeps its data, its charts, its still picture and its notebook display in one folder.
"""
