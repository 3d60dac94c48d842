"""``wb.check(operation, function)``: a collective algorithm of the user's own, run and judged.

check.py    what is asked: which cases, in which order; the report of what came of them
cases.py    one case: its inputs, and what every rank must hold at the end
crew.py     the driver's side of n ranks that run cases; rank.py is the ranks' side
waiting.py  who waits for whom: is it a deadlock?
judge.py    what a case's results and rows say
report.py   in words; picture.py in a picture
"""
