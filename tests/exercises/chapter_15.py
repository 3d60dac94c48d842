"""Answers to the exercises of chapter 15."""


def two(failure):
    return failure.replace() if failure.number < 2 else failure.shrink()


def one(failure):
    return failure.replace() if failure.number < 1 else failure.shrink()


def none(failure):
    return None


def rule(incident):
    if incident["what"] == "sample":
        return "skip"
    if incident["what"] == "source":
        return "wait" if incident["seconds"] < incident["restart_seconds"] else "stop"
    return "wait" if incident["seconds"] < 1 else "abandon"


def patient(incident):
    return "wait"


def cautious(incident):
    return "stop"


def forever(incident):
    chosen = rule(incident)
    return "wait" if chosen == "stop" else chosen


ANSWERS = {
    "15.1": (two, one, none),
    "15.2": (3, 13, 0),
    "15.3": (rule, patient, cautious, forever),
}
