"""The findings of a study in sentences, from its table."""

from __future__ import annotations

import polars as pl

BUSY = 0.1  # of the ranks' time
DISTURBED = "Something else is running on this machine"  # tests: no notebook keeps it
NEAR = 0.9  # of the ideal, or of the machine's most: as good as it


def sentences(table: pl.DataFrame, cores: int, padded: bool) -> list[str]:
    """Describe the machine, then each series.

    ``padded``: computation sleeps, so that cores do not limit it.
    """
    if not table.height:
        return []
    lines = [_machine(table, cores, padded), *(_line(part) for part in _lines(table))]
    return [*lines, *_disturbed(table, cores)]


def _lines(table: pl.DataFrame) -> list[pl.DataFrame]:
    return table.partition_by("series", maintain_order=True)


def _machine(table: pl.DataFrame, cores: int, padded: bool) -> str:
    machine = f"This machine gives {cores} core{'s' * (cores > 1)}"
    most = table.sort("ranks").row(-1, named=True)
    ranks, computing, copying = most["ranks"], most["compute_ceiling"], most["memory_ceiling"]
    if computing is None:
        return f"{machine}."
    base = round(ranks / most["ideal"])
    against = "one does" if base == 1 else f"{base} do"
    text = (
        f"{machine}: {ranks} processes that only compute do {computing:.1f} times what {against}, "
        f"that only copy memory {copying:.1f} times."
    )
    if padded:
        return f"{text} Computing is padded here, and a rank that sleeps needs no core."
    if ranks > cores:
        return f"{text} Beyond {cores} ranks there is nothing to gain here but practice."
    return text


def _disturbed(table: pl.DataFrame, cores: int) -> list[str]:
    """Return a warning if ranks with cores enough waited for one: other processes used it."""
    p = pl.col
    roomy = table.filter(p("ranks") * p("threads") <= cores)["core_wait_share"].drop_nulls()
    most = float(roomy.to_numpy().max(initial=0.0))
    if most < BUSY:
        return []
    return [
        f"{DISTURBED}: ranks that could have had a core each waited "
        f"for one {most:.0%} of the time. Measure again when it is quiet."
    ]


def _line(part: pl.DataFrame) -> str:
    first, best = part.row(0, named=True), part.sort("speed_up").row(-1, named=True)
    name = f"{first['series']}: " if first["series"] else ""
    if part.height < 2:
        return f"{name}only {first['ranks']} ranks were measured: nothing to compare with."
    last = part.row(-1, named=True)
    text = f"{name}{_sentence(last)}"
    if best["ranks"] not in (last["ranks"], first["ranks"]):
        text += f", {best['ranks']} ranks {best['speed_up']:.2f} times"
    if best["ranks"] == first["ranks"]:
        text += ": more ranks are slower"
    return f"{text}. {_why(last)}".strip()


def _sentence(row: dict[str, float]) -> str:
    ideal, base = row["ideal"], round(row["ranks"] / row["ideal"])
    return (
        f"{row['ranks']} ranks are {row['speed_up']:.2f} times as fast as {base}, where {ideal:g} "
        "times would be ideal"
    )


def _why(row: dict[str, float]) -> str:
    """Explain the difference to the ideal, as far as it was measured."""
    if row["efficiency"] >= NEAR:
        return ""
    reasons = []
    if row["compute_ceiling"] is not None and row["speed_up"] >= NEAR * row["compute_ceiling"]:
        reasons.append("as fast as this machine's cores allow")
    if row["exposed_share"]:
        reasons.append(f"{row['exposed_share']:.0%} of a step is exposed communication")
    if (row["wait_share"] or 0) >= 0.02:
        reasons.append(f"ranks wait for each other {row['wait_share']:.0%} of it")
    if (row["core_wait_share"] or 0) >= 0.02:
        reasons.append(f"ranks wait for a core {row['core_wait_share']:.0%} of the time")
    cost = f"An iteration costs {row['rank_seconds'] * 1e3:.1f} ms of all ranks' time together"
    return f"{cost}; {', '.join(reasons)}." if reasons else f"{cost}."
