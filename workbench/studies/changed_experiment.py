"""One change of an experiment: other ranks, another algorithm, other microbatches, or another link;
what the two are called.

offer(exp, 1)                                    -> {"ranks": 5, "words": ""}
with_knob(exp, all_reduce="naive")               -> the same, with another algorithm
with_link(exp, 0, 1, bandwidth="10 Mbit/s")      -> the same, but for the link from 0 to 1
names_of(exp, that)                  -> ("link 0 → 1 unlimited", "link 0 → 1 at 10 Mbit/s")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from workbench.collectives import algorithms
from workbench.common import topology
from workbench.common.arguments import Bandwidth, Duration, Rank, checked
from workbench.common.errors import SpecError
from workbench.common.units import counted, micro
from workbench.experiment.network import Link, Network
from workbench.experiment.options import options_of
from workbench.experiment.spec import Experiment
from workbench.experiment.traits import known_traits
from workbench.views.pages.facts import in_a_line

MOST_RANKS = 64
MOST_TRIES = 8  # numbers of ranks that are tried after one that cannot be
_MICROBATCHES = "microbatches"
_LABELS = {"ranks": "Ranks", "all_reduce": "All-reduce", _MICROBATCHES: "Microbatches"}
_RANKS = (1, 2, 3, 4, 5, 6, 8, 12, 16)  # that a knob tries
_POWERS = (1, 2, 4, 8, 16, 32)
Ends = tuple[int, int]  # of a link: from this rank to that one


def offer(exp: Experiment, step: int) -> dict[str, Any]:
    """Return what one rank more (or less) would be: ``ranks``, how many it can be, 0 for none; and
    ``words``: why not the next number.
    """
    words = ""
    for ranks in range(exp.ranks + step, exp.ranks + step * (1 + MOST_TRIES), step):
        if not 1 <= ranks <= MOST_RANKS:
            break
        try:
            exp.replace(ranks=ranks)
        except SpecError as error:
            words = words or f"{_ranks(ranks)} cannot be: {_reason(error)}"
        else:
            return {"ranks": ranks, "words": words}
    bound = f"{MOST_RANKS} ranks at most" if step > 0 else "at least one rank"
    return {"ranks": 0, "words": words or f"A run has {bound}."}


def knobs(exp: Experiment) -> list[dict[str, Any]]:
    """Return what of an experiment can be turned for its next run: name, label, the value now, and
    the values that can be.
    """
    tried: dict[str, Sequence[Any]] = {"ranks": _RANKS}
    if (
        exp.ranks > 1
        and isinstance(exp.all_reduce, str)
        and known_traits(exp.strategy).messages == "all_reduce"
    ):
        tried["all_reduce"] = ("auto", *algorithms("all_reduce"))
    if _MICROBATCHES in options_of(exp.strategy):
        tried[_MICROBATCHES] = _POWERS
    result = []
    for name, values_tried in tried.items():
        value = _knob(exp, name)
        others = (one for one in values_tried if one == value or _can_be(exp, {name: one}))
        values = [*dict.fromkeys(others), *([] if value in values_tried else [value])]
        if len(values) > 1:
            if all(isinstance(one, int) for one in values):
                values.sort()
            result.append({"name": name, "label": _LABELS[name], "now": value, "values": values})
    return result


def _can_be(exp: Experiment, change: dict[str, Any]) -> bool:
    try:
        with_knob(exp, **change)
    except SpecError:
        return False
    return True


def with_knob(exp: Experiment, **change: Any) -> Experiment:
    """Return the experiment with one other value of ``ranks``, ``all_reduce`` or ``microbatches``.
    Raises SpecError if that cannot be.
    """
    if len(change) != 1 or (name := next(iter(change))) not in _LABELS:
        raise SpecError(f"One of {', '.join(_LABELS)} can be changed at a time.")
    if name == _MICROBATCHES:
        return exp.replace(options={**exp.options, **change})
    return exp.replace(**change)


def can_change_links(exp: Experiment) -> bool:
    """Return whether the experiment can be run with another link between two of its ranks."""
    try:
        with_link(exp, 0, 1, latency="1 s")
    except SpecError:
        return False
    return True


@checked
def with_link(
    exp: Experiment,
    source: Rank,
    target: Rank,
    *,
    latency: Duration | None = None,
    bandwidth: Bandwidth | None = None,
    both: bool = False,
) -> Experiment:
    """Return the experiment with another link from ``source`` to ``target``; what is not named
    stays. ``both``: the link back too. Raises SpecError if that cannot be, or changes nothing.
    """
    network = exp.network
    links = dict(network.links)
    for ends in ((source, target), (target, source))[: 2 if both else 1]:
        links[ends] = _beside_usual(network, ends, latency, bandwidth)
        if links[ends] == Link():
            del links[ends]
    changed = exp.replace(network=_with_links(network, links))
    if not _changed_links(exp, changed):
        raise SpecError(
            f"Link {source} → {target} is {_link_words(network.link(source, target))} in this run "
            "already: change it first."
        )
    return changed


def _beside_usual(network: Network, ends: Ends, latency: str | None, bandwidth: str | None) -> Link:
    """Return another link between two ranks, without what is as usual between their hosts."""
    now = network.link(*ends)
    usual = network.at(topology.level(network.levels, *ends))
    link = Link(latency=latency or now.latency, bandwidth=bandwidth or now.bandwidth, down=now.down)
    return Link(
        latency=None if link.latency_ns == usual.latency_ns else link.latency,
        bandwidth=None if link.bytes_per_second == usual.bytes_per_second else link.bandwidth,
        down=link.down,
    )


def names_of(before: Experiment, after: Experiment) -> tuple[str, str] | None:
    """Return how two experiments are called that differ in one knob alone, or in one link alone
    (in both of its directions, too); None where they differ in anything else, or not at all.
    """
    try:
        for name, words in _WORDS.items():
            one, other = _knob(before, name), _knob(after, name)
            if None in (one, other) or one == other:
                continue
            alike = with_knob(before, **{name: other}) == with_knob(after, **{name: other})
            return (words(one), words(other)) if alike else None
        if before.replace(network=_with_links(before.network, dict(after.network.links))) != after:
            return None
    except SpecError:
        return None
    changed = _changed_links(before, after)
    if len(changed) == 2 and changed[0] == changed[1][::-1]:
        there, back = changed
        same = all(
            _link_words(exp.network.link(*there)) == _link_words(exp.network.link(*back))
            for exp in (before, after)
        )
        return _link_names(before, after, there, "↔") if same else None
    return _link_names(before, after, changed[0], "→") if len(changed) == 1 else None


def _knob(exp: Experiment, name: str) -> Any:
    """Return the value of a knob; None where the experiment says none."""
    if name == _MICROBATCHES:
        option = options_of(exp.strategy).get(name)
        return exp.options.get(name, option and option.default)
    return getattr(exp, name)


def _link_names(before: Experiment, after: Experiment, ends: Ends, arrow: str) -> tuple[str, str]:
    source, target = ends
    names = (
        f"link {source} {arrow} {target} {_link_words(exp.network.link(*ends))}"
        for exp in (before, after)
    )
    return next(names), next(names)


def _link_words(link: Link) -> str:
    """Return what a link is like, as it stands behind its name: "at 1 ms, 10 Mbit/s"."""
    if link.down:
        return "cut"
    latency = [micro(link.latency or "")] if link.latency_ns else []
    limited = link.bytes_per_second != float("inf")
    parts = [*latency, *([link.bandwidth or ""] if limited else [])]
    return f"at {', '.join(parts)}" if parts else "unlimited"


def _changed_links(before: Experiment, after: Experiment) -> list[Ends]:
    """Return the links that are not alike in two experiments of as many ranks."""
    ends = sorted({*before.network.links, *after.network.links})
    return [
        one
        for one in ends
        if _link_words(before.network.link(*one)) != _link_words(after.network.link(*one))
    ]


def _with_links(network: Network, links: dict[Ends, Link]) -> Network:
    given = {name: getattr(network, name) for name in network.model_fields_set}
    return Network(**{**given, "links": links})


def _reason(error: SpecError) -> str:
    """Return why an experiment cannot be, in one sentence."""
    problem = next(iter(error.problems))
    reason = in_a_line(problem.message).rstrip(".")
    field = problem.path[-1:] if reason.startswith(("must ", "gives ", "is ", "has ")) else ()
    return " ".join(map(str, (*field, f"{reason}.")))


def _ranks(ranks: int) -> str:
    return counted(ranks, "rank")


_WORDS: dict[str, Callable[[Any], str]] = {
    "ranks": _ranks,
    "all_reduce": lambda name: f"all-reduce {name}",
    _MICROBATCHES: lambda count: counted(count, "microbatch"),
}
