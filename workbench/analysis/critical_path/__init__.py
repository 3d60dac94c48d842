"""The critical path through all ranks, and how long an iteration would take if work on it changed.

    moments.py         moments and the arcs between them: earliest and latest times, the path
    spans.py           spans of work from the event table, each in the order of its rank's program
    dependencies.py    moments and arcs of spans: order, messages, buckets, microbatches, slots
    iterations.py      which rows belong to an iteration, and when it began and ended
    path.py            the critical path of an iteration, slack, and what it cannot see
    picture.py         the path as a still picture
    retiming.py        the same work with other links and other computing
    what_if.py         predictions with intervals, and which change helps most
    refusing.py        why a record does not carry a prediction

Add a kind of dependency to dependencies.py, and to tests/analysis/critical_path/ a graph that is
wrong without it.
"""
