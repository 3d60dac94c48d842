"""Answers to the exercises of chapter 23."""


def update(Q, state, action, reward, following, over, rate, discount):
    aim = reward if over else reward + discount * max(Q[following])
    return float(Q[state][action] + rate * (aim - Q[state][action]))


def no_future(Q, state, action, reward, following, over, rate, discount):
    return float(Q[state][action] + rate * (reward - Q[state][action]))


def the_mean_action(Q, state, action, reward, following, over, rate, discount):
    aim = reward if over else reward + discount * sum(Q[following]) / len(Q[following])
    return float(Q[state][action] + rate * (aim - Q[state][action]))


def beyond_the_end(Q, state, action, reward, following, over, rate, discount):
    return update(Q, state, action, reward, following, False, rate, discount)


ANSWERS = {
    "23.1": (update, no_future, the_mean_action, beyond_the_end),
    "23.2": (5, 4, 1.25, 50),
}
