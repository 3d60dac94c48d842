"""Answers to the exercises of chapter 10."""


def rest(order, done, batch_size, rank, ranks):
    starts = range(done * batch_size, len(order), batch_size)
    return [order[at : at + batch_size][rank::ranks] for at in starts]


def all_again(order, done, batch_size, rank, ranks):
    return rest(order, 0, batch_size, rank, ranks)


def a_block_each(order, done, batch_size, rank, ranks):
    each = batch_size // ranks
    starts = range(done * batch_size, len(order), batch_size)
    return [order[at + rank * each : at + (rank + 1) * each] for at in starts]


def every_pth_of_the_epoch(order, done, batch_size, rank, ranks):
    mine = order[done * batch_size :][rank::ranks]
    return [mine[at : at + batch_size // ranks] for at in range(0, len(mine), batch_size // ranks)]


ANSWERS = {
    "10.1": (60.7, 20, 100),
    "10.2": ((303, 597), (121, 101), (303, 303)),
    "10.3": ((0.86, 1.83), (1, 4), (0.86, 3)),
    "10.4": (4, 3, 10),
    "10.5": (0.316, 0.25, 0.68),
    "10.6": (0.288, 0.4, 0.96, 0.12),
    "10.7": (rest, all_again, a_block_each, every_pth_of_the_epoch),
}
