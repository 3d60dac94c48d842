"""Answers to the exercises of chapter 7."""


def in_turn(ranks, microbatches, stages_per_rank):
    rows = []
    for stage in range(ranks):
        ahead = min(microbatches, ranks - stage)
        row = [f"{stage}F{m}" for m in range(ahead)]
        for m in range(microbatches):
            row.append(f"{stage}B{m}")
            if ahead + m < microbatches:
                row.append(f"{stage}F{ahead + m}")
        rows.append(row)
    return rows


def apart(ranks, microbatches, stages_per_rank):
    rows = []
    for stage, row in enumerate(in_turn(ranks, microbatches, 1)):
        order, waiting = [], []
        for action in row:
            if "B" not in action:
                order.append(action)
                continue
            order.append(action.replace("B", "I"))
            waiting.append(action.replace("B", "W"))
            if len(waiting) > stage:
                order.append(waiting.pop(0))
        rows.append(order + waiting)
    return rows


def greedy(ranks, microbatches, stages_per_rank, bound=4):
    rows, done = [[] for _ in range(ranks)], set()
    while min(map(len, rows)) < 3 * microbatches:
        step = []
        for stage, row in enumerate(rows):
            f, i, w = (sum(kind in one for one in row) for kind in "FIW")
            input_there = stage == 0 or f"{stage - 1}F{f}" in done
            returned = stage + 1 == ranks or f"{stage + 1}I{i}" in done
            possible = {
                f"{stage}I{i}": i < f and returned,
                f"{stage}F{f}": f < min(microbatches, w + bound) and input_there,
                f"{stage}W{w}": w < i,
            }
            step += [(row, action) for action in possible if possible[action]][:1]
        for row, action in step:
            row.append(action)
            done.add(action)
    return rows


def stuck(ranks, microbatches, stages_per_rank):
    return [[*reversed(row)] for row in in_turn(ranks, microbatches, 1)]


ANSWERS = {"07.1": (greedy, in_turn, stuck), "07.2": (apart, greedy, in_turn)}
