"""``wb.check(operation, function)``: run a user's collective algorithm on real ranks and judge it.

check.py        the entry point: the cases and their order
cases.py        one case: its inputs, and the expected result on every rank
rank_pool.py    the driver's side of n ranks that run cases; case_runner.py is the ranks' side
waiting.py      which rank waits for which: is it a deadlock?
judge.py        the verdict on one case, from its results and event rows; wrong_elements.py says
                what is wrong where
report.py       the report as text; picture.py draws it
"""
