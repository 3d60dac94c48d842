"""The facts about emulated links for pages: their ends, their emulation, and notes on them.

A link that differs has an entry of ``emulated``: ``from``, ``to``, ``made`` ("emulated: 5 ms"),
``down`` (it lets nothing through) and ``words``, all of it in a sentence. What most links of a
level have in common stands in ``link_levels``, an entry with ``made`` and ``down`` per level:
inside hosts, between hosts, and so on; without hosts one for all links.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from workbench.common import topology
from workbench.common.units import micro
from workbench.shared_memory.control_state import ControlState
from workbench.shared_memory.link_state import LinkState

Level = dict[str, Any]  # {"made": "emulated: 1 ms", "down": False}; made is "" for plain links
PLAIN: Level = {"made": "", "down": False}


def levels_of_spec(network: Mapping[str, Any]) -> list[Level]:
    """Return what an experiment's links are like at each level."""
    usual = {name: network.get(name) for name in ("latency", "bandwidth")}
    between, above = network.get("between") or {}, len(network.get("levels") or [0]) - 1
    far = between if isinstance(between, list) else [between] * above
    levels = [{name: value for name, value in link.items() if value} for link in far]
    return [_level(*_of_spec(one)) for one in (usual, *({**usual, **link} for link in levels))]


def links_of_spec(network: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return ``emulated`` of an experiment: its links that differ."""
    links = []
    for name, link in sorted(network.get("links", {}).items()):
        source, _, target = name.partition("->")
        links.append(_link_entry(int(source), int(target), *_of_spec(link)))
    return links


def _of_spec(link: Mapping[str, Any]) -> tuple[str, bool]:
    """Return a link's latency and bandwidth as the experiment has them, and whether it is down."""
    parts = [link[name] for name in ("latency", "bandwidth") if link.get(name)]
    return ", ".join(parts), bool(link.get("down"))


def link_notes(levels: Sequence[Level]) -> list[str]:
    """Return a note on each level whose links are emulated; one where all are alike."""
    emulations = [level["made"] for level in levels]
    if len({*emulations}) == 1:
        return [f"all links {emulations[0]}"] if emulations[0] else []
    names = ["inside hosts", "between hosts", "between racks"] + ["between groups"] * len(
        emulations
    )
    return [f"links {name} {each}" for name, each in zip(names, emulations, strict=False) if each]


def emulated(
    state: ControlState, ranks: int, levels: Sequence[int] = ()
) -> tuple[list[dict[str, Any]], list[Level]]:
    """Return ``emulated`` and ``link_levels`` as the links are now. Most links of a level must be
    alike to be told together.
    """
    links, everyone = state.links, range(ranks)
    at = {(a, b): topology.level(levels, a, b) for a in everyone for b in everyone if a != b}
    common: list[LinkState | None] = []
    for level in range(len(levels) or 1):
        counts = Counter(link for ends, link in links.items() if at.get(ends) == level)
        alike, count = counts.most_common(1)[0] if counts else (None, 0)
        most = sum(each == level for each in at.values())
        common.append(alike if 2 * count > most and (count > 1 or levels) else None)
    entries = [
        _link_entry(*ends, link.words, link.down)
        for ends, link in links.items()
        if link != common[at.get(ends, 0)]
    ]
    return entries, [_level(link.words, link.down) if link else PLAIN for link in common]


def made_links(
    run_facts: Mapping[str, Any], links: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], bool]:
    """Return those of these links that are emulated, with whether they are cut. ``run_facts``: the
    header's ``run``.
    """
    own = {(link["from"], link["to"]): bool(link["down"]) for link in run_facts["emulated"]}
    levels, usual = run_facts["levels"], run_facts["link_levels"]
    result = {}
    for ends in links:
        level = usual[topology.level(levels, *ends)]
        if ends in own or level["made"]:
            result[ends] = own.get(ends, bool(level["down"]))
    return result


def emulation_notes(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the words of links that differ; of more than two how many there are."""
    if len(entries) <= 2:
        return [str(one["words"]) for one in entries]
    kinds = {str(one["made"]) for one in entries}
    return [f"{len(entries)} links {kinds.pop() if len(kinds) == 1 else 'emulated'}"]


def changed(
    known: Iterable[dict[str, Any]], by_hand: Mapping[tuple[int, int], LinkState]
) -> list[dict[str, Any]]:
    """Return ``emulated`` of a record, from its experiment and its fault rows: what links were like
    at its end.
    """
    others = [link for link in known if (link["from"], link["to"]) not in by_hand]
    now = [
        _link_entry(*ends, link.words, link.down) for ends, link in by_hand.items() if link.words
    ]
    return others + now


def _level(words: str, down: bool) -> Level:
    return {"made": _emulation_words(words, down), "down": down} if words or down else PLAIN


def _link_entry(source: int, target: int, words: str, down: bool) -> dict[str, Any]:
    made_words = _emulation_words(words, down)
    facts = {"made": made_words, "down": down, "words": f"link {source} → {target} {made_words}"}
    return {"from": source, "to": target, **facts}


def _emulation_words(words: str, down: bool) -> str:
    return "cut" if down else f"emulated: {micro(words)}"
