"""The judge's words: complaints about tiles become findings, each with its line of code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from workbench.auditing.judging.case import Case, listed, numbered
from workbench.auditing.judging.copies import NOT_REDUCED, NOT_SUMMED, WRONG
from workbench.auditing.judging.tiles import Complaint, Row, Tile
from workbench.auditing.messages import Carried
from workbench.auditing.report import Audit, Verdict, Weight
from workbench.common.units import counted


def put_into_words(case: Case) -> None:
    """Turn complaints about tiles into findings: one per parameter, with one sentence for all that
    have the same complaint.
    """
    grouped = defaultdict[object, list[tuple[Tile, Complaint]]](list)
    for tile in case.tiles:
        for one in tile.complaints:
            grouped[one.text if one.text == WRONG else (one.text, one.more)].append((tile, one))
    for pairs in grouped.values():
        tiles = [*dict.fromkeys(tile for tile, _ in pairs)]
        sentence = _sentence(case, pairs, tiles)
        text = pairs[0][1].text
        line = ""
        if NOT_REDUCED in text or NOT_SUMMED in text:
            words, line = lines_of(case, tiles, pairs[0][1].group)
            sentence += f". {words}"
        for tile in tiles:
            mine = [one for other, one in pairs if other is tile]
            ranks = {tile.ranks[0] if len(tile.ranks) == 1 else -1} - {-1}
            ranks |= {one.rank for one in mine if one.rank is not None}
            ranks = ranks or {*tile.ranks}
            case.words.blame(
                sentence, tile.name, sorted(ranks), mine[0].group, mine[0].factor, line
            )


def _sentence(case: Case, pairs: list[tuple[Tile, Complaint]], tiles: list[Tile]) -> str:
    """Return one sentence for these tiles."""
    names = [*dict.fromkeys(tile.name for tile in tiles)]
    everything = len(names) == len({one.name for one in case.tiles}) > 3
    subject = f"all {len(names)} parameters" if everything else listed(names)
    held = {rank for tile in tiles for rank in tile.ranks}
    on_all = held == {*range(case.size)} and all(
        one.rank is None or {c.rank for t, c in pairs if t is tile} == {*tile.ranks}
        for tile, one in pairs
    )
    where = ""
    if not on_all:
        ranks = {r for t, c in pairs for r in (t.ranks if c.rank is None else [c.rank])}
        where = f", on {numbered(ranks)}"
    more = "; ".join(dict.fromkeys(one.more for _, one in pairs if one.more))
    return f"{subject}{where}: {pairs[0][1].text}{f' ({more})' if more else ''}"


def lines_of(case: Case, tiles: Iterable[Tile], group: Sequence[int]) -> tuple[str, str]:
    """Return which collectives over a group carried these gradients, or which others', in words;
    and the line of the first that is concerned.
    """
    ranks = {*group}
    mine = [*dict.fromkeys(tile.name for tile in tiles)]
    many = max(number for _, number in case.losses) + 1
    calls = defaultdict[tuple[str, str, str], list[Carried]](list)
    for one in case.lens[min(ranks)].carried:
        if len({*one.group} & ranks) > 1:
            when = one.when
            if "in backward" not in when or many == 1:
                when = when.rstrip(" 0123456789")
            calls[one.call, one.line, when].append(one)
    axis = case.axis(ranks)
    after = sum(len(all_) for (_, _, when), all_ in calls.items() if "in backward" not in when)
    parts, line, carried = [], "", set[str]()
    for (call, at, when), all_ in calls.items():
        names = {name: None for one in all_ for name in one.names}
        carried |= {*names}
        if names:
            line = line or at
            own_first = sorted(names, key=lambda name: name not in mine)
            times = counted(len(all_), "call")
            parts.append(f"{call} at {at} carries, {when}, {listed(own_first, 3)} ({times})")
    missing = [name for name in mine if name not in carried]
    seen = f"of {after} collectives seen after backward" if after else "of the collectives seen"
    if not parts:
        return f"None {seen} over {axis} carries {listed(mine, 3)}", line
    if missing:
        parts.append(f"none {seen} over {axis} carries {listed(missing, 3)}")
    elif not any("in backward" in when for _, _, when in calls):
        parts.append("what it gives is not what is used: is a copy reduced?")
    text = "; ".join(parts)
    return text[0].upper() + text[1:], line


def verdict_of(case: Case) -> tuple[Verdict, str]:
    """Return the verdict and its sentence."""
    words = case.words
    if words.abstains:
        return "ABSTAINS", "; ".join(dict.fromkeys(words.abstains))
    if words.findings:
        return "WRONG", words.findings[0].sentence
    if words.questions:
        return "QUESTION", words.questions[0].sentence
    count = len(case.classes)
    whole = "one loss" if count == 1 else f"one weighted sum of {count} losses"
    return "RIGHT", f"the gradient that is used is that of {whole}"


def report(case: Case, seconds: float) -> Audit:
    """Return the audit's result."""
    verdict, sentence = verdict_of(case)
    return Audit(
        verdict=verdict,
        sentence=sentence,
        findings=(*case.words.findings, *case.words.questions),
        weights=tuple(_weights(case)),
        losses=tuple(case.whose([number]) for number in range(len(case.sources))),
        notes=tuple(dict.fromkeys(case.words.notes)),
        seconds=seconds,
        runs=case.runs,
    )


def _weights(case: Case) -> Iterable[Weight]:
    for tile in case.tiles:
        for copy in tile.copies:
            row: Row | None = tile.rows.get(copy)
            if row is not None:
                values = tuple(None if one is None else one.value for one in row)
                straight = tuple(one is None or one.straight for one in row)
            elif case.expected and len(case.expected) == len(case.sources):
                values, straight = tuple(case.expected), (True,) * len(case.expected)
            else:
                continue
            yield Weight(
                parameter=tile.name,
                copies=tuple(tile.ranks),
                rank=copy[0],
                weights=values,
                straight=straight,
            )
