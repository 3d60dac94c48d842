"""The public reports that became tests, by their numbers: what the product must say of each.

``SAID``: a test in this folder, or where another one holds. ``SURROUNDINGS``: reports about shells,
containers and interpreters, by theirs. ``WAIT``: the sentence, which takes
knowledge of what is in the tensors: these become the audit's tests. ``BY_DRIFT``: a loop, which
``wb.drift`` judges (tests/studies).
"""

from __future__ import annotations

SAID = {
    1: "right numbers, where Gloo's are silently wrong",
    2: "the mean",
    3: "rank 1 arrives last in 10 of 10 all-reduces",
    4: "equal gradients: torch's own, as over Gloo",
    8: "calls name the axis of the mesh: four all-reduces, then one",
    10: "torch's own error, as over Gloo",
    12: "a weight used twice in a split pass: tests/training/pipelines/test_split_backward.py",
    14: "both ranks, both calls, both lines; the record says the same",
    18: "messages counted",
    20: "both ranks, both calls, both lines",
    21: "both ranks, both calls, both lines, also where one rank has passed on",
    22: "the same, and that only the root of a reduce has the result",
    23: "group rank 0 is global rank 1",
    24: "the order that was asked for, as over Gloo",
    25: "works, as over Gloo; of a later group it is said which one each rank makes",
    26: "the circle, hop by hop, with the groups",
    27: "ends, as over Gloo",
    28: "equal, as over Gloo",
    29: "torch's result, which loses a row: an alarm for the day on which it does not",
    30: "torch's refusal, as over Gloo",
    31: "equal gradients, as over Gloo",
    32: "torch's CheckpointError, as over Gloo",
    35: "lists, as over Gloo",
    37: "both ranks, both calls, both lines",
}
WAIT = {
    5: "iteration 1 to 10: no gradient was reduced",
    6: "gradient of w: samples weigh 1/2 and 1/6, not 1/4 each",
    9: "two ranks clip by norms of their own: 3 and 4, together 5",
    11: "two copies of one tensor are updated by different gradients",
    13: "gradient of an expert's weight: 2 times the right one, the size of the axis ep",
    15: "the gradient was sliced where a reduce-scatter is due",
    16: "gradient of norm.weight: not summed over the axis tp",
    17: "the result of this all-reduce was not used",
    19: "positions are not sharded as tokens are",
    33: "a sum over ranks was used as a local count",
    34: "layers of rank 1's stage are those of rank 0",
}
SURROUNDINGS = {
    1: "runs with 1 MB of /dev/shm: tests/soak/test_small_memory.py",
    3: "the same in GB18030, ISO-8859-1 and C as in UTF-8: tests/interface/test_cli.py",
    4: "runs without a home directory, as over Gloo",
    5: "a signal's handler runs while its rank waits in a collective, as over Gloo",
    6: "numbers do not depend on the default dtype, device or mode, as over Gloo",
    7: "float64 on one rank and float32 on the other: both ranks, both calls, both lines",
    13: "forks and loaders' workers leave the group alone: tests/process_group/test_forks.py",
    15: "runs where variables of other launchers are left over, as over Gloo",
    16: "runs in a terminal of no width, in another time zone and under -O, as over Gloo",
    17: "calls last as long as they did where ranks' clocks differ",
    18: "the record says which rank failed and how",
    19: "groups made and ended again and again leave no descriptor, as over Gloo",
}
BY_DRIFT = {
    7: "8 times: 4 ranks × 2 passes",
    36: "does not hold: each epoch another order",
}
