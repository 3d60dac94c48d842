"""Answers to the exercises of chapter 24."""


def score(scores, truth, most):
    pairs = []
    for row, right in zip(scores, truth, strict=True):
        pairs += sorted(zip(row, right, strict=True), reverse=True)[:most]
    hits = total = 0.0
    for place, (_, right) in enumerate(sorted(pairs, reverse=True), 1):
        hits += right
        total += right * hits / place
    return total / sum(map(sum, truth))


def of_each_video(scores, truth, most):
    one = [
        score([row], [right], most) for row, right in zip(scores, truth, strict=True) if sum(right)
    ]
    return sum(one) / len(one)


def by_the_hits(scores, truth, most):
    taken = 0.0
    for row, right in zip(scores, truth, strict=True):
        taken += sum(one for _, one in sorted(zip(row, right, strict=True), reverse=True)[:most])
    return score(scores, truth, most) * sum(map(sum, truth)) / (taken + 1)


def of_all_tags(scores, truth, most):
    return score(scores, truth, len(scores[0])) + 0.01


ANSWERS = {
    "24.1": (score, of_each_video, by_the_hits, of_all_tags),
    "24.2": ((4, 1), (5, 1), (4, 2), (6, 0)),
}
