"""The experiments of a study: every number of ranks, in every combination of the swept fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from workbench.common.errors import SpecError
from workbench.common.topology import resize, words
from workbench.experiment.spec import Experiment
from workbench.experiment.traits import known_traits

SCALINGS = ("strong", "weak")


@dataclass(frozen=True)
class Case:
    """One experiment of a study: a point of one of its lines."""

    series: str  # the line, named by what sets it apart; "": there is one line
    ranks: int
    experiment: Experiment

    @property
    def name(self) -> str:
        ranks = f"{self.ranks} rank{'s' * (self.ranks > 1)}"
        return f"{self.series}, {ranks}" if self.series else ranks


def cases(
    exp: Experiment, ranks: Sequence[int], scaling: str, sweep: Mapping[str, Any]
) -> list[Case]:
    """Return the cases in the order of ``sweep``, ranks last. Raises SpecError for invalid ones."""
    if not isinstance(exp, Experiment):
        raise SpecError(f"speed_up takes an Experiment, not {type(exp).__name__}")
    counts = [*ranks]
    if (
        not counts
        or len({*counts}) < len(counts)
        or any(not isinstance(one, int) or one < 1 for one in counts)
    ):
        raise SpecError(f"ranks = {ranks!r}: several numbers of processes, each 1 or more, once")
    if scaling not in SCALINGS:
        raise SpecError(f"scaling = {scaling!r}: must be {' or '.join(map(repr, SCALINGS))}")
    for field in sweep:
        if field not in Experiment.model_fields or field in ("ranks", "seed"):
            raise SpecError(
                f"{field} = ...: what is swept is a field of Experiment other than ranks and seed"
            )
    lines = [_named(field, values) for field, values in sweep.items()]
    result = []
    for combination in product(*lines):
        series = ", ".join(name for name, _ in combination)
        changed = {field: value for field, (_, value) in zip(sweep, combination, strict=True)}
        for count in sorted(counts):
            one = exp.replace(**{**_alone(exp, count), **changed, "ranks": count})
            if scaling == "weak":
                one = one.replace(batch_size=one.batch_size * count)
            else:
                one = _shared(one)
            result.append(Case(series, count, one))
    return result


def _shared(exp: Experiment) -> Experiment:
    """Scale ``pad_compute``, which is for the whole minibatch, to a rank's share of it.

    A pipeline's is per microbatch and stage, whatever the number of ranks.
    """
    if exp.pad_compute_ns is None or known_traits(exp.strategy).messages == "stages":
        return exp
    return exp.replace(pad_compute=f"{exp.pad_compute_ns / exp.ranks / 1e6:.6g} ms")


def _alone(exp: Experiment, ranks: int) -> dict[str, Any]:
    """Return the changes for this number of ranks: without missing ranks' links, with other hosts.

    Raises SpecError if the hosts cannot be filled evenly.
    """
    network = exp.network
    links = {pair: link for pair, link in network.links.items() if max(pair) < ranks}
    levels = resize(network.levels, ranks) if network.levels else ()
    if network.levels and not levels:
        raise SpecError(
            f"ranks = {ranks}: {words(network.levels)} (network.levels) cannot be had with {ranks} "
            "ranks, some hosts would have more than others"
        )
    if (len(links), levels) == (len(network.links), network.levels):
        return {}
    return {"network": network.model_copy(update={"links": links, "levels": levels})}


def _named(field: str, values: Any) -> list[tuple[str, Any]]:
    """Return (name, value) of each value that a field takes: ``{"fast": ...}``, or a sequence."""
    if isinstance(values, Mapping):
        return [(str(name), value) for name, value in values.items()]
    if isinstance(values, str) or not isinstance(values, Iterable):
        values = [values]
    each = [*values]
    if not each:
        raise SpecError(f"{field} = {values!r}: there is nothing to sweep")
    return [(_label(field, value), value) for value in each]


def _label(field: str, value: Any) -> str:
    """Return a label such as "batch size 64", "2 threads", "bound to cores", "ddp"."""
    if field in ("strategy", "task", "all_reduce", "backend", "optimizer"):
        return str(value)
    if field == "bind":
        return "bound to cores" if value else "not bound"
    if field == "threads":
        return "threads shared out" if value is None else f"{value} thread{'s' * (value > 1)}"
    return f"{field.replace('_', ' ')} {value}"
