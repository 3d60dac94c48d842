"""The predicted time of each algorithm on this machine and these links, and so the choice of
"auto".
"""
